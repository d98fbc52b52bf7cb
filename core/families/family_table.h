// The table of families: text files that are built into the program, a paragraph per family. Parsed as they are needed.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/families/expression.h"

namespace mfu {

/// A text of the table, by its file's name.
struct FamilyFile {
  std::string_view name, text;
};

/// The part of a model that a row describes.
enum class RowKind : std::uint8_t {
  kText,       ///< a decoder, an encoder, or both
  kTower,      ///< an image or sound encoder
  kComposite,  ///< a text model with towers in front
};

/// The words of a text, which white space separates.

/// One line of a paragraph.
struct Definition {
  std::string_view name;
  Expression value;
  std::size_t offset;  ///< of its line, in the file's text
};

/// A family with all that it defines, its own and what it takes from the row that it is like.
struct FamilyRow {
  std::string_view type;
  std::string_view like;
  RowKind kind;
  std::vector<std::pair<std::string_view, const Definition*>> definitions;  ///< by name

  /// nullptr: neither this row nor one that it builds on has the word.
  [[nodiscard]] const Definition* word(std::string_view name) const;
  /// The same; nullptr: `undefined`, too.
  [[nodiscard]] const Definition* find(std::string_view name) const;
  /// The text of a definition in quotes; empty: it has none.
  [[nodiscard]] std::string_view text(std::string_view name) const;
  /// Every key of the config that a definition reads, `moe.num_experts` as such.
  [[nodiscard]] std::vector<std::string_view> keys() const;
};

/// Calls `use(is a key, text)` with every name and key that the expression has, in the order of its text.
template <typename Use>
void for_each_name(const Expression& value, const Use& use) {
  if (value.kind == Expression::Kind::kName || value.kind == Expression::Kind::kKey)
    use(value.kind == Expression::Kind::kKey, value.text);
  for (const Expression& part : value.parts) for_each_name(part, use);
  if (value.function != nullptr && value.function->arguments.back() == 'f') use(true, value.text);
}

/// [any thread]
class FamilyTable {
 public:
  /// \param keys every key of a config that rows may read, separated by white space. The texts outlive the table.
  FamilyTable(std::vector<FamilyFile> files, std::string_view keys);
  /// The table of this build. Never destroyed.
  static const FamilyTable& built_in();
  static std::vector<FamilyFile> built_in_files();
  static std::string_view built_in_keys() noexcept;

  /// Whether a `model_type` has a row. Rows that only others build on (`_gpt`) have none.
  [[nodiscard]] bool has(std::string_view type) const noexcept;
  /// Every `model_type`, in the table's order.
  [[nodiscard]] std::vector<std::string_view> types() const;
  /// The row of a `model_type` or of a base. Error: `decoders.families:12: [acme] chnk: ...` for a definition that
  /// nothing uses, a name that nothing has, an expression that cannot be read. A row that is wrong is never read.
  [[nodiscard]] Result<const FamilyRow*> row(std::string_view type) const;

 private:
  struct Paragraph {
    const FamilyFile* file;
    std::string_view type, like;
    std::size_t begin, end;                ///< of its lines, in the file's text
    mutable std::vector<Definition> own;   ///< once it is read
    mutable std::optional<FamilyRow> row;  ///< likewise
    mutable std::optional<Error> mistake;
  };

  void index(const FamilyFile& file);
  /// `decoders.families:12: [acme] `, with the line of an offset.
  [[nodiscard]] static std::string place(const Paragraph& paragraph, std::size_t offset);
  [[nodiscard]] const Paragraph* find(std::string_view type) const noexcept;
  /// Both with `mutex_` held.
  const Paragraph* load(std::string_view type, int depth) const;
  [[nodiscard]] std::optional<Error> read(const Paragraph& paragraph, int depth) const;
  [[nodiscard]] std::optional<Error> read_lines(const Paragraph& paragraph) const;
  [[nodiscard]] std::optional<Error> check(const Paragraph& paragraph) const;
  [[nodiscard]] bool is_word(const Paragraph& paragraph, std::string_view name) const;
  [[nodiscard]] bool is_key(std::string_view path) const;

  std::vector<FamilyFile> files_;
  std::deque<Paragraph> paragraphs_;
  std::vector<std::string_view> keys_;  ///< sorted
  mutable std::mutex mutex_;            ///< guards what is read of paragraphs
};

}  // namespace mfu
