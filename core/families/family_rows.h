// Families that are a row of text: each says, in the words of core/families/expression.h, what its config's keys mean.
// Internal to the readers of core/model.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/json_fields.h"
#include "core/model/architecture.h"

namespace mfu {

/// What stands behind the layers of a checkpoint, by `architectures` in its config.
enum class ModelHead : std::uint8_t {
  kOwn,          ///< the output matrix or heads that the family is published with
  kBare,         ///< hidden states, not even a pooler
  kNone,         ///< hidden states only: `BertModel`, `LlamaModel`
  kSequence,     ///< a classifier per sequence: `*ForSequenceClassification`
  kToken,        ///< a classifier per token: `*ForTokenClassification`, `*ForQuestionAnswering`
  kPreTraining,  ///< what a model is first trained with: `*ForPreTraining`
  kEncoder,      ///< the encoder of an encoder-decoder model: `T5EncoderModel`
};

/// What a row describes.
enum class RowKind : std::uint8_t {
  kText,       ///< a decoder, an encoder, or both
  kTower,      ///< an image encoder
  kComposite,  ///< a text model with towers in front
};

/// One row. A value that it does not define comes from the row named `like`, and from that one's `like` in turn.
struct FamilyRow {
  std::string_view type;
  std::string_view like;
  std::string_view text;
};

/// The row of a `model_type`; nullptr: there is none. Rows that only others build on (`_llama`) are not found.
[[nodiscard]] const FamilyRow* find_row(std::string_view model_type) noexcept;
/// The row that reads decoders by the usual key names.
[[nodiscard]] const FamilyRow* generic_row() noexcept;
[[nodiscard]] RowKind kind_of(const FamilyRow& row) noexcept;
/// Every `model_type` that has a row, in the table's order.
[[nodiscard]] std::vector<std::string_view> row_types();

void build_row(const FamilyRow& row, const Fields& f, ModelHead head, Architecture& spec);

/// Reads `f` as a model of `type`, whatever describes it (read_architecture.cpp). \param nested inside another config,
/// which leaves out what its class has as a default.
void read_typed(const Fields& f, std::string_view type, bool nested, ModelHead head, Architecture& spec);

}  // namespace mfu
