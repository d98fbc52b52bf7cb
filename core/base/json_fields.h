// Reads typed fields of a JSON object and explains what is wrong in one line: file, key, value, expectation.
// Internal to the config readers of core.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace mfu {

/// Largest dimension that a config may give. Products of dimensions are checked apart (core/count.h).
inline constexpr std::int64_t kMaxDimension = std::int64_t{1} << 31;

/// How deep a config may be nested. The deepest published ones have five levels.
inline constexpr std::size_t kMaxNesting = 64;

/// Parses JSON text; // and /* */ comments are allowed. Error: place, and where the text stops being
/// JSON, or that it is nested deeper than kMaxNesting.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, std::string_view place);

/// Keys that an object of `text`, which is JSON, names more than once; the last value of each is the one that counts.
[[nodiscard]] std::vector<std::string> repeated_keys(std::string_view text);

/// The value as one short printable piece of an error message.
[[nodiscard]] std::string brief(const nlohmann::json& value);

/// Typed access to one JSON object. The first problem is kept; later reads then return fallbacks.
/// Keys may list alternatives, `n_layer|num_hidden_layers`, looked up in order. A null value counts as missing.
class Fields {
 public:
  /// \param place what precedes the key in messages: `job.json: ` or `job.json: model.`
  Fields(const nlohmann::json& object, std::string place, std::optional<Error>* problem)
      : object_(object), place_(std::move(place)), problem_(problem) {}

  [[nodiscard]] const nlohmann::json* find(std::string_view keys) const;
  /// The same object where a key that it leaves out is that of `defaults`, which outlives it. A null stays a null.
  [[nodiscard]] Fields with_defaults(const nlohmann::json& defaults) const {
    Fields filled = *this;
    filled.defaults_ = &defaults;
    return filled;
  }
  /// The same object with `defaults` that only `default_of` gives: where a reader may do without the key.
  [[nodiscard]] Fields with_optional_defaults(const nlohmann::json& defaults) const {
    Fields filled = *this;
    filled.optional_ = &defaults;
    return filled;
  }
  /// The object's value under the key: no default.
  [[nodiscard]] const nlohmann::json* written(std::string_view key) const;
  /// The value that either kind of defaults has for a key that the object does not mention.
  [[nodiscard]] const nlohmann::json* default_of(std::string_view key) const;
  /// Present, even as null.
  [[nodiscard]] bool mentions(std::string_view key) const;
  [[nodiscard]] std::int64_t require(std::string_view keys, std::int64_t min = 1,
                                     std::int64_t max = kMaxDimension) const;
  [[nodiscard]] std::int64_t integer_or(std::string_view keys, std::int64_t fallback, std::int64_t min = 0,
                                        std::int64_t max = kMaxDimension) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view keys, std::int64_t min = 0,
                                                    std::int64_t max = kMaxDimension) const;
  [[nodiscard]] std::optional<double> number(std::string_view keys, double above) const;
  [[nodiscard]] bool flag(std::string_view keys, bool fallback) const;
  [[nodiscard]] std::string text_or(std::string_view keys, std::string_view fallback) const;
  /// The object under `key`, or an empty one. Not an object: a problem.
  [[nodiscard]] Fields child(std::string_view key) const;
  /// The object that the list under `key` has at `index`. None: a problem, and an empty object.
  [[nodiscard]] Fields item(std::string_view key, std::int64_t index) const;
  /// Every key that is not in `known`, with its place.
  [[nodiscard]] std::vector<std::string> unknown_keys(std::initializer_list<std::string_view> known) const;

  /// Notes `key: expected <expected>, got <value>`.
  void wrong(std::string_view key, std::string_view expected, const nlohmann::json* value) const;
  void problem(std::string message) const;
  [[nodiscard]] bool failed() const noexcept { return problem_->has_value(); }
  [[nodiscard]] const nlohmann::json& object() const noexcept { return object_; }
  [[nodiscard]] const std::string& place() const noexcept { return place_; }

 private:
  const nlohmann::json& object_;
  std::string place_;
  std::optional<Error>* problem_;
  const nlohmann::json* defaults_ = nullptr;
  const nlohmann::json* optional_ = nullptr;
};

}  // namespace mfu
