// The little language of the family table: sums and products of config keys, by which a row says its dimensions.
//
//     d=hidden_size; h=head_dim~d/H; window=i % 2 == 0 ? sliding_window : 0; layer=2*d + is(norm,layer)*2*d
//
// A row is a list of definitions. In an expression a name means, in this order: the layer number `i`, a value that the
// reader gives, another definition, a key of the config. `key~x` is the key's value, or `x` where it is missing or
// null; a key without `~` must be there. `.key` is always a key of the config. Booleans are 0 and 1; `/` must leave no
// remainder, `//` rounds down. `a ? b : c`, `&& || !` and comparisons are as in C.
//
//     has(key)          1 if the key is there and not null
//     said(key)         1 if the key is there, even as null
//     is(key,word)      1 if its text is `word`; starts(key,word): begins with it
//     at(key,n)         item `n` of a list of numbers or booleans; atis(key,n,word): 1 if item `n` is the text `word`
//     own(key,n,field)  the number `field` of the object under the number `n` in the object `key`; 0 where there is
//     none chr(key,n,c)      1 if letter `n` of the text is `c` len(key)          length of a list or number of keys of
//     an object; 0 where it is missing count(key,word)   how many items are the text `word`; in(key,n): 1 if the list
//     has the number `n` high(key)         a size: the number, the first item of a list, or `height` of an object;
//     wide(key): the other scaled(key,x,n)   n times the number under the key (x where it is missing), rounded down
//     names(key,word)   1 if its text, or a text of its list, holds `word`; above(key): the number, 0 where it is
//     missing or not positive; sum(n,x): x for i = 0 to n - 1, added up
//     min(a,b) max(a,b) ceil(a,b): a / b rounded up; up(a,b): a rounded up to a multiple of b
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/base/json_fields.h"

namespace mfu {

/// Evaluates the definitions of one row for one config. The first problem is kept in `fields`, in the words of a config
/// error; every value is 1 from then on.
class Expressions {
 public:
  /// Definitions that come later stand before earlier ones of the same name. \param fields outlives this.
  Expressions(std::initializer_list<std::string_view> definitions, const Fields& fields);
  void define(std::string_view definitions);

  /// A value that the config does not have, such as the width of another part.
  void give(std::string_view name, std::int64_t value);
  /// The layer that `i` means from here on.
  void set_layer(std::int64_t i);

  [[nodiscard]] bool defines(std::string_view name) const;
  /// Text of a definition, as it stands.
  [[nodiscard]] std::string_view text(std::string_view name) const;
  /// Value of a definition. A row without it: a mistake of the table, reported as a problem.
  [[nodiscard]] std::int64_t value(std::string_view name);
  /// The same, where 0 and less are a problem of the config.
  [[nodiscard]] std::int64_t positive(std::string_view name);
  /// Whether any definition has `word` in it.
  [[nodiscard]] bool speaks_of(std::string_view word) const;
  /// Whether any value so far depended on `i`. If none of one layer's does, all layers are alike.
  [[nodiscard]] bool by_layer() const noexcept { return by_layer_; }
  [[nodiscard]] const Fields& fields() const noexcept { return fields_; }

 private:
  friend class ExpressionParser;

  /// The first key of the config that a definition depends on, for messages; empty: none.
  [[nodiscard]] std::string key_of(std::string_view name, int depth) const;

  const Fields& fields_;
  std::map<std::string_view, std::string_view> definitions_;
  std::map<std::string, std::int64_t, std::less<>> given_;
  std::map<std::string_view, std::int64_t> known_, known_of_layer_;  ///< values; the second: those that depend on `i`
  std::int64_t layer_ = 0;
  int depth_ = 0;
  bool by_layer_ = false;
};

}  // namespace mfu
