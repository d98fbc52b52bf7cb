#include "core/base/json_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/printable.h"

namespace mfu {

using nlohmann::json;

namespace {

/// Python writes NaN, Infinity and -Infinity, which JSON has not (Mamba-2's `time_step_limit`): null instead.
std::string without_python_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (std::size_t i = 0; i < text.size();) {
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out.append(text.substr(i, 2));
      i += 2;
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    bool replaced = false;
    const bool could_be = !quoted && (text[i] == '-' || text[i] == 'I' || text[i] == 'N');
    for (std::string_view word :
         {std::string_view("-Infinity"), std::string_view("Infinity"), std::string_view("NaN")}) {
      if (could_be && text.substr(i).starts_with(word)) {
        out += "null";
        i += word.size();
        replaced = true;
        break;
      }
    }
    if (!replaced) out += text[i++];
  }
  return out;
}

/// How deep objects and lists of `text` are nested, as far as that shows without parsing: strings and comments
/// are skipped, nothing else is checked.
std::size_t nesting_depth(std::string_view text) noexcept {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (c == '/' && text.substr(i).starts_with("//")) {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '/' && text.substr(i).starts_with("/*")) {
      i = std::min(text.find("*/", i + 2), text.size());
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      depth -= depth > 0 ? 1 : 0;
    }
  }
  return deepest;
}

/// `: unexpected '}'`, out of the parser's own message; nothing where it does not say it in these words.
std::string unexpected_in(std::string_view what) {
  const std::size_t at = what.find("unexpected ");
  if (at == std::string_view::npos) return "";
  const std::string_view rest = what.substr(at);
  return ": " + printable(rest.substr(0, std::min<std::size_t>(rest.find(';'), 60)));
}

}  // namespace

Result<json> parse_json(std::string_view text, std::string_view place) {
  // Reading, printing and destroying a value recurse, on the stack of a thread that is not ours.
  if (nesting_depth(text) > kMaxNesting) {
    return Error{std::string(place) + ": expected JSON that is nested at most " + std::to_string(kMaxNesting) +
                 " deep, got more"};
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return Error{std::string(place) + ": expected a JSON object, but it is empty"};
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!parsed.is_discarded()) return parsed;
  if (text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos) {
    parsed = json::parse(without_python_numbers(text), nullptr, false, true);
    if (!parsed.is_discarded()) return parsed;
  }
  // Parse once more to learn where it went wrong: only the failing case pays for the exception.
  std::string where = "not valid JSON";
  try {
    [[maybe_unused]] const json again = json::parse(text, nullptr, true, true);
  } catch (const json::parse_error& error) {
    const std::size_t offset = std::min<std::size_t>(error.byte, text.size());
    const std::string_view before = text.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = before.size() - (before.rfind('\n') + 1);  // npos + 1 is 0
    where = "not valid JSON near line " + std::to_string(line) + ", column " + std::to_string(column) +
            unexpected_in(error.what());
  } catch (...) {
    where = "not valid JSON";
  }
  return Error{std::string(place) + ": expected a JSON object, got text that is " + where};
}

std::vector<std::string> repeated_keys(std::string_view text) {
  std::vector<std::string> repeated;
  std::vector<std::set<std::string>> open;  // keys of the objects around
  const json::parser_callback_t see = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) {
      open.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open.pop_back();
    } else if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      repeated.push_back(value.get<std::string>());
    }
    return true;
  };
  [[maybe_unused]] const json seen = json::parse(text, see, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  return repeated;
}

std::string brief(const json& value) {
  std::string text = value.is_object()  ? std::string("an object")
                     : value.is_array() ? std::string("a list")
                                        : value.dump(-1, ' ', true, json::error_handler_t::replace);
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

const json* Fields::find(std::string_view keys) const {
  if (!object_.is_object()) return nullptr;
  const std::string_view all = keys;
  bool said_null = false;
  while (!keys.empty()) {
    const std::size_t bar = keys.find('|');
    const auto found = object_.find(std::string(keys.substr(0, bar)));
    if (found != object_.end() && !found->is_null()) return &*found;
    said_null = said_null || found != object_.end();
    if (bar == std::string_view::npos) break;
    keys.remove_prefix(bar + 1);
  }
  if (defaults_ == nullptr || said_null) return nullptr;
  return Fields(*defaults_, place_, problem_).find(all);
}

const json* Fields::written(std::string_view key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json* Fields::default_of(std::string_view key) const {
  if (mentions(key)) return nullptr;
  for (const json* defaults : {defaults_, optional_}) {
    if (defaults == nullptr) continue;
    const auto found = defaults->find(std::string(key));
    if (found != defaults->end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

bool Fields::mentions(std::string_view key) const { return object_.is_object() && object_.contains(std::string(key)); }

void Fields::problem(std::string message) const {
  if (!problem_->has_value()) *problem_ = Error{std::move(message)};
}

void Fields::wrong(std::string_view key, std::string_view expected, const json* value) const {
  const std::string_view first = key.substr(0, key.find('|'));
  std::string message = place_ + std::string(first) + ": expected " + std::string(expected);
  message += value == nullptr ? ", but it is missing" : ", got " + brief(*value);
  problem(std::move(message));
}

std::optional<std::int64_t> Fields::integer(std::string_view keys, std::int64_t min, std::int64_t max) const {
  const json* value = find(keys);
  if (value == nullptr) return std::nullopt;
  std::optional<std::int64_t> result;
  if (value->is_number_unsigned()) {
    const auto wide = value->get<std::uint64_t>();
    if (wide <= static_cast<std::uint64_t>(INT64_MAX)) result = static_cast<std::int64_t>(wide);
  } else if (value->is_number_integer()) {
    result = value->get<std::int64_t>();
  } else if (value->is_number_float()) {
    const double real = value->get<double>();  // 7e9 and 4096.0 are integers to their writer
    if (std::abs(real) < 9.0e15 && real == std::floor(real)) result = static_cast<std::int64_t>(real);
  }
  if (!result || *result < min || *result > max) {
    std::string expected = "an integer from " + std::to_string(min) + " to " + std::to_string(max);
    if (min == 1 && max == kMaxDimension) expected = "an integer > 0, at most 2^31";
    if (min == 0 && max == kMaxDimension) expected = "an integer >= 0, at most 2^31";
    wrong(keys, expected, value);
    return std::nullopt;
  }
  return result;
}

std::int64_t Fields::require(std::string_view keys, std::int64_t min, std::int64_t max) const {
  if (find(keys) == nullptr) {
    wrong(keys, min == 1 ? "an integer > 0" : "an integer >= 0", nullptr);
    return min;
  }
  return integer(keys, min, max).value_or(min);
}

std::int64_t Fields::integer_or(std::string_view keys, std::int64_t fallback, std::int64_t min,
                                std::int64_t max) const {
  return integer(keys, min, max).value_or(fallback);
}

std::optional<double> Fields::number(std::string_view keys, double above) const {
  const json* value = find(keys);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() > above)
    return value->get<double>();
  wrong(keys, "a number > 0", value);
  return std::nullopt;
}

bool Fields::flag(std::string_view keys, bool fallback) const {
  const json* value = find(keys);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  wrong(keys, "true or false", value);
  return fallback;
}

std::string Fields::text_or(std::string_view keys, std::string_view fallback) const {
  const json* value = find(keys);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  wrong(keys, "text", value);
  return std::string(fallback);
}

namespace {

const json& empty_object() {
  static const json& empty = *new json(json::object());  // never destroyed: exit order does not matter
  return empty;
}

}  // namespace

Fields Fields::child(std::string_view key) const {
  const json* value = find(key);
  if (value != nullptr && !value->is_object()) {
    wrong(key, "an object", value);
    value = nullptr;
  }
  return {value == nullptr ? empty_object() : *value, place_ + std::string(key) + ".", problem_};
}

Fields Fields::item(std::string_view key, std::int64_t index) const {
  const json* list = find(key);
  const bool has = list != nullptr && list->is_array() && index >= 0 && index < static_cast<std::int64_t>(list->size());
  const json* value = has ? &(*list)[static_cast<std::size_t>(index)] : nullptr;
  if (value == nullptr || !value->is_object()) {
    wrong(key, "a list with an object for layer " + std::to_string(index), has ? value : list);
    value = nullptr;
  }
  return {value == nullptr ? empty_object() : *value, place_ + std::string(key) + "[" + std::to_string(index) + "].",
          problem_};
}

std::vector<std::string> Fields::unknown_keys(std::initializer_list<std::string_view> known) const {
  std::vector<std::string> unknown;
  if (!object_.is_object()) return unknown;
  for (const auto& item : object_.items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) unknown.push_back(item.key());
  return unknown;
}

}  // namespace mfu
