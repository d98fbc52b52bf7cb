#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/families/expression.h"

namespace mfu {
namespace {

using nlohmann::json;

bool is_list(const FunctionCall& c) { return c.found != nullptr && c.found->is_array(); }

std::string text_of(const json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::int64_t with_range(const FunctionCall& c, std::string_view key, const json& value) {
  if (value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= kMaxDimension)
    return value.get<std::int64_t>();
  c.fields.wrong(key, "integers from 0 to 2^31", &value);
  return 1;
}

const json* item_of(const FunctionCall& c) {
  const std::int64_t index = c.numbers[0];
  if (!is_list(c) || index < 0 || static_cast<std::size_t>(index) >= c.found->size()) {
    c.fields.wrong(c.key, "a list with an item for layer " + std::to_string(index), c.found);
    return nullptr;
  }
  return &(*c.found)[static_cast<std::size_t>(index)];
}

std::int64_t item(const FunctionCall& c) {
  if (c.found != nullptr && c.found->is_number_integer()) return with_range(c, c.key, *c.found);  // one for all layers
  const json* value = item_of(c);
  if (value == nullptr) return 1;
  return value->is_boolean() ? static_cast<std::int64_t>(value->get<bool>()) : with_range(c, c.key, *value);
}

std::int64_t item_is(const FunctionCall& c) {
  const json* value = item_of(c);
  return value != nullptr && value->is_string() && value->get_ref<const std::string&>() == c.word ? 1 : 0;
}

std::int64_t of_layer(const FunctionCall& c) {
  if (c.found == nullptr || !c.found->is_object()) return 0;
  for (const auto& [key, values] : c.found->items()) {
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc() || end != key.data() + key.size() || number != c.numbers[0] || !values.is_object())
      continue;
    const auto found = values.find(std::string(c.word));
    return found == values.end() || found->is_null() ? 0 : with_range(c, c.word, *found);
  }
  return 0;
}

std::int64_t letter_is(const FunctionCall& c) {
  const std::string text = text_of(c.found);
  if (c.numbers[0] < 0 || static_cast<std::size_t>(c.numbers[0]) >= text.size()) {
    c.fields.wrong(c.key, "a letter for layer " + std::to_string(c.numbers[0]), c.found);
    return 1;
  }
  return c.word.size() == 1 && text[static_cast<std::size_t>(c.numbers[0])] == c.word.front() ? 1 : 0;
}

std::int64_t count(const FunctionCall& c) {
  if (!is_list(c)) return 0;
  return std::count_if(c.found->begin(), c.found->end(),
                       [&](const json& one) { return one.is_string() && one.get_ref<const std::string&>() == c.word; });
}

std::int64_t contains(const FunctionCall& c) {
  const auto same = [&](const json& one) { return one.is_number_integer() && one.get<std::int64_t>() == c.numbers[0]; };
  return is_list(c) && std::any_of(c.found->begin(), c.found->end(), same) ? 1 : 0;
}

std::int64_t holds(const FunctionCall& c) {
  const auto here = [&](const json& text) {
    return text.is_string() && text.get_ref<const std::string&>().find(c.word) != std::string::npos;
  };
  return c.found != nullptr && (here(*c.found) || (is_list(c) && std::any_of(c.found->begin(), c.found->end(), here)))
             ? 1
             : 0;
}

std::int64_t length(const FunctionCall& c) {
  if (c.found != nullptr && c.found->is_string()) return static_cast<std::int64_t>(text_of(c.found).size());
  return c.found != nullptr && c.found->is_structured() ? static_cast<std::int64_t>(c.found->size()) : 0;
}

std::int64_t positive_part(const FunctionCall& c) {
  return c.found != nullptr && c.found->is_number() && c.found->get<double>() > 0 ? with_range(c, c.key, *c.found) : 0;
}

std::int64_t edge(const FunctionCall& c, bool high) {
  const json* value = c.found;
  if (is_list(c) && !c.found->empty()) value = high ? &c.found->front() : &c.found->back();
  if (c.found != nullptr && c.found->is_object()) {
    const auto side = c.found->find(high ? "height" : "width");
    value = side == c.found->end() ? nullptr : &*side;
  }
  if (value != nullptr && value->is_number_integer() && value->get<std::int64_t>() > 0 &&
      value->get<std::int64_t>() <= kMaxDimension)
    return value->get<std::int64_t>();
  c.fields.wrong(c.key, "a size in pixels", c.found);
  return 1;
}

std::int64_t scaled(const FunctionCall& c) {
  if (c.found != nullptr && !c.found->is_number()) {
    c.fields.wrong(c.key, "a number", c.found);
    return 1;
  }
  const double factor = c.found != nullptr ? c.found->get<double>() : c.real;
  const double product = factor * static_cast<double>(c.numbers[0]);
  if (!(product >= 0) || product > 9.0e15) {
    c.fields.wrong(c.key, "a small number >= 0", c.found);
    return 1;
  }
  return static_cast<std::int64_t>(product + 1e-9);
}

std::int64_t divide_up(const FunctionCall& c) {
  return c.numbers[1] > 0 ? narrowed((__int128(c.numbers[0]) + c.numbers[1] - 1) / c.numbers[1], c.fields) : 1;
}

std::int64_t round_up(const FunctionCall& c) {
  const __int128 to = c.numbers[1];
  return to > 0 ? narrowed((__int128(c.numbers[0]) + to - 1) / to * to, c.fields) : 1;
}

/// README.md of this room describes each.
constexpr ExpressionFunction kFunctions[] = {
    {"has", "k", [](const FunctionCall& c) -> std::int64_t { return c.present ? 1 : 0; }},
    {"mentioned", "k", [](const FunctionCall& c) -> std::int64_t { return c.mentioned ? 1 : 0; }},
    {"equals", "kw", [](const FunctionCall& c) -> std::int64_t { return text_of(c.found) == c.word ? 1 : 0; }},
    {"starts_with", "kw", [](const FunctionCall& c) -> std::int64_t { return text_of(c.found).starts_with(c.word); }},
    {"holds", "kw", holds},
    {"item", "kn", item},
    {"item_is", "knw", item_is},
    {"contains", "kn", contains},
    {"count", "kw", count},
    {"length", "k", length},
    {"of_layer", "knf", of_layer},
    {"letter_is", "knw", letter_is},
    {"height", "k", [](const FunctionCall& c) { return edge(c, true); }},
    {"breadth", "k", [](const FunctionCall& c) { return edge(c, false); }},
    {"scaled", "krn", scaled},
    {"positive_part", "k", positive_part},
    {"minimum", "nn", [](const FunctionCall& c) { return std::min(c.numbers[0], c.numbers[1]); }},
    {"maximum", "nn", [](const FunctionCall& c) { return std::max(c.numbers[0], c.numbers[1]); }},
    {"divide_up", "nn", divide_up},
    {"round_up", "nn", round_up},
};

}  // namespace

const ExpressionFunction* find_function(std::string_view name) noexcept {
  const auto* found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                   [name](const ExpressionFunction& one) { return one.name == name; });
  return found == std::end(kFunctions) ? nullptr : found;
}

std::int64_t narrowed(__int128 value, const Fields& fields) {
  if (value <= INT64_MAX && value >= INT64_MIN) return static_cast<std::int64_t>(value);
  fields.problem(fields.place() + "params: a product of dimensions is beyond 2^63");
  return 1;
}

}  // namespace mfu
