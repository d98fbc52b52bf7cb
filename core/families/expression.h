// One expression of the family table, parsed. The README of this room describes the language.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "core/base/json_fields.h"
#include "core/base/result.h"

namespace mfu {

/// The arguments of a function of the language.
struct FunctionCall {
  const Fields& fields;         ///< of the config, for messages
  std::string_view key;         ///< the path that the call names
  const nlohmann::json* found;  ///< its value, or its class's default; nullptr: none
  bool present;                 ///< there is a value without asking for what the class may leave out
  bool mentioned;               ///< the config has the key, even as null
  std::int64_t numbers[2];      ///< arguments that are expressions, in order
  double real;                  ///< an argument that is a decimal fraction
  std::string_view word;        ///< an argument that is a text or the name of a field
};

/// A function of the language. Each letter of `arguments` is one: k a key of the config, n an expression, r a decimal
/// fraction, w a text in quotes, f the name of a field.
struct ExpressionFunction {
  std::string_view name, arguments;
  std::int64_t (*evaluate)(const FunctionCall&);
};

/// nullptr: there is none of that name.
[[nodiscard]] const ExpressionFunction* find_function(std::string_view name) noexcept;

/// `a` by `times` or `plus`, as far as 64 bits reach. Beyond: a problem of the config, and 1.
[[nodiscard]] std::int64_t narrowed(__int128 value, const Fields& fields);

/// A parsed expression. The texts point into the table.
struct Expression {
  enum class Kind : std::uint8_t {
    kNumber,
    kText,       ///< a whole definition in quotes
    kUndefined,  ///< the word `undefined`: a row that needs the value must give one
    kGiven,      ///< the word `given`: a value that the reader gives
    kLayer,      ///< the number of the layer, or the counter of a sum
    kName,       ///< a definition; a key of the config where there is none
    kKey,        ///< `.key`, or a key before a `~`
    kFallback,   ///< keys and, last, the value where none of them is there
    kChoice,     ///< condition, value, other value
    kSum,        ///< how many, what
    kCall,
    kNot,
    kMinus,
    kBinary,
  };
  Kind kind = Kind::kNumber;
  std::int64_t number = 0;
  std::string_view text;  ///< name, key, text, operator; of a call the text argument
  double real = 0;
  const ExpressionFunction* function = nullptr;
  std::vector<Expression> parts;  ///< of a call with a key that comes first
};

/// Error: the piece that cannot be read, without a place.
[[nodiscard]] Result<Expression> parse_expression(std::string_view text);

}  // namespace mfu
