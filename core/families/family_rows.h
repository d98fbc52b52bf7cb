// Builds the architecture of a family that is a row of the table (README.md). Internal to the readers of this room.
#pragma once

#include <string>
#include <string_view>

#include "core/base/json_fields.h"
#include "core/model/architecture.h"

namespace mfu {

/// The head behind the layers of a checkpoint, by `architectures` in its config.
enum class ModelHead : std::uint8_t {
  kOwn,          ///< the output matrix or heads that the family is published with
  kBare,         ///< hidden states, not even a pooler
  kNone,         ///< hidden states only: `BertModel`, `LlamaModel`
  kSequence,     ///< a classifier per sequence: `*ForSequenceClassification`
  kToken,        ///< a classifier per token: `*ForTokenClassification`, `*ForQuestionAnswering`
  kPreTraining,  ///< the heads of a model's first training: `*ForPreTraining`
  kEncoder,      ///< the encoder of an encoder-decoder model: `T5EncoderModel`
};

/// Rows that are no `model_type`: of decoders by the usual key names, and of draft heads.
inline constexpr std::string_view kGenericRow = "generic", kDraftRow = "_eagle3";

/// The first of `architectures`; empty: the config has none.
[[nodiscard]] std::string class_of(const Fields& f);

/// Builds the architecture that a row of the table describes.
void build_row(std::string_view type, const Fields& f, ModelHead head, Architecture& spec);

/// Reads `f` as a model of `type`, by a row or by code (read_architecture.cpp). \param nested inside another config,
/// which leaves out what its class has as a default.
void read_typed(const Fields& f, std::string_view type, bool nested, ModelHead head, Architecture& spec);

}  // namespace mfu
