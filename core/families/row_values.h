// The values of one row's definitions for one config.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fields.h"
#include "core/families/family_table.h"

namespace mfu {

/// Evaluates a row. The first problem is kept in `fields`, in the words of a config error; then every value is 1.
class RowValues {
 public:
  /// Both outlive this.
  RowValues(const FamilyRow& row, const Fields& fields) : row_(row), fields_(fields) {}

  /// A value that the config does not have, such as the width of another part.
  void give(std::string_view name, std::int64_t value);
  /// The meaning of `layer` from here on.
  void set_layer(std::int64_t layer);

  [[nodiscard]] bool defines(std::string_view name) const { return row_.find(name) != nullptr; }
  [[nodiscard]] std::string_view text(std::string_view name) const { return row_.text(name); }
  /// Value of a definition. A row without it: a mistake of the table, reported as a problem.
  [[nodiscard]] std::int64_t value(std::string_view name);
  [[nodiscard]] bool flag(std::string_view name) { return value(name) != 0; }
  /// The value, where 0 and less are a problem of the config.
  [[nodiscard]] std::int64_t positive(std::string_view name);
  /// The keys of the config by which a condition does not hold: those of its parts that are 0, joined by `&&`.
  [[nodiscard]] std::vector<std::string> keys_against(std::string_view condition);
  /// Whether any value so far depended on `layer`. If none of one layer's does, all layers are alike.
  [[nodiscard]] bool by_layer() const noexcept { return by_layer_; }
  [[nodiscard]] const Fields& fields() const noexcept { return fields_; }
  [[nodiscard]] const FamilyRow& row() const noexcept { return row_; }

 private:
  /// Follows `a.b.c`, and `list.layer.c`, and calls `use` with the object that holds the last key, and that key.
  template <typename Use>
  auto at(const Fields& f, std::string_view path, const Use& use) -> decltype(use(f, std::string()));
  /// A number or a boolean that the config has, or else only one that its class takes.
  [[nodiscard]] std::optional<std::int64_t> optional(std::string_view path, bool defaults);
  [[nodiscard]] std::int64_t required(std::string_view path);
  [[nodiscard]] std::int64_t evaluate(const Expression& e);
  void add_keys_against(const Expression& e, std::vector<std::string>& keys);
  /// Adds every key of the config that an expression reads, through definitions too.
  void add_keys(const Expression& e, std::vector<std::string>& keys, int depth) const;
  [[nodiscard]] std::int64_t binary(const Expression& e);
  [[nodiscard]] std::int64_t quotient(std::int64_t value, const Expression& divisor, bool exact);
  [[nodiscard]] std::int64_t fallback(const Expression& e);
  [[nodiscard]] std::int64_t sum(const Expression& e);
  [[nodiscard]] std::int64_t call(const Expression& e);
  [[nodiscard]] std::int64_t lookup(std::string_view name);
  /// True if a name is something else than a key of the config.
  [[nodiscard]] bool known(std::string_view name) const;
  /// The first key that an expression has, for messages. \param written only one that the config has.
  [[nodiscard]] std::string key_of(const Expression& e, bool written, int depth = 0) const;

  const FamilyRow& row_;
  const Fields& fields_;
  std::map<std::string_view, std::int64_t> given_;
  std::map<std::string_view, std::int64_t> known_,
      known_of_layer_;  ///< values; the second: those that depend on `layer`
  std::int64_t layer_ = 0;
  int depth_ = 0;
  bool by_layer_ = false;
};

}  // namespace mfu
