#include "core/families/row_values.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace mfu {
namespace {

using nlohmann::json;
using Kind = Expression::Kind;
using Wide = __int128;

constexpr int kDeepestDefinition = 64;  // definitions within definitions; a circle ends here

}  // namespace

template <typename Use>
auto RowValues::at(const Fields& f, std::string_view path, const Use& use) -> decltype(use(f, std::string())) {
  constexpr std::string_view kItem = "layer.";
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return use(f, std::string(path));
  const std::string_view key = path.substr(0, dot), rest = path.substr(dot + 1);
  if (!rest.starts_with(kItem)) return at(f.child(key), rest, use);
  by_layer_ = true;
  return at(f.item(key, layer_), rest.substr(kItem.size()), use);
}

std::optional<std::int64_t> RowValues::optional(std::string_view path, bool defaults) {
  return at(fields_, path, [&](const Fields& f, const std::string& key) -> std::optional<std::int64_t> {
    const json* value = defaults ? f.default_of(key) : f.written(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>() ? 1 : 0;
    if (defaults) return value->is_number_integer() ? std::optional(value->get<std::int64_t>()) : std::nullopt;
    return f.integer(key, 0).value_or(1);
  });
}

std::int64_t RowValues::required(std::string_view path) {
  return at(fields_, path, [](const Fields& f, const std::string& key) { return f.require(key); });
}

void RowValues::give(std::string_view name, std::int64_t value) { given_.insert_or_assign(name, value); }

void RowValues::set_layer(std::int64_t layer) {
  layer_ = layer;
  known_of_layer_.clear();
}

bool RowValues::known(std::string_view name) const { return given_.contains(name) || row_.word(name) != nullptr; }

std::int64_t RowValues::value(std::string_view name) {
  if (fields_.failed()) return 1;
  if (const auto known = known_.find(name); known != known_.end()) return known->second;
  if (const auto known = known_of_layer_.find(name); known != known_of_layer_.end()) {
    by_layer_ = true;
    return known->second;
  }
  const Definition* found = row_.find(name);
  if (found == nullptr || found->value.kind == Kind::kText || found->value.kind == Kind::kGiven ||
      depth_ >= kDeepestDefinition) {
    fields_.problem(fields_.place() + "model_type: the table has no \"" + std::string(name) + "\" for it");
    return 1;
  }
  ++depth_;
  const bool by_layer = std::exchange(by_layer_, false);
  const std::int64_t value = evaluate(found->value);
  const bool of_layer = by_layer_;
  by_layer_ = by_layer || of_layer;
  --depth_;
  if (fields_.failed()) return 1;
  (of_layer ? known_of_layer_ : known_)[found->name] = value;
  return value;
}

std::int64_t RowValues::positive(std::string_view name) {
  const std::int64_t result = value(name);
  if (result > 0 || fields_.failed()) return fields_.failed() ? 1 : result;
  const std::string key = key_of(row_.find(name)->value, true);
  fields_.problem(fields_.place() + (key.empty() ? std::string(name) : key) +
                  ": expected an integer > 0, at most 2^31, got " + std::to_string(result));
  return 1;
}

std::int64_t RowValues::lookup(std::string_view name) {
  if (const auto given = given_.find(name); given != given_.end()) return given->second;
  if (row_.word(name) != nullptr) return value(name);
  return required(name);
}

std::int64_t RowValues::evaluate(const Expression& e) {
  switch (e.kind) {
    case Kind::kLayer:
      by_layer_ = true;
      return layer_;
    case Kind::kName:
      return lookup(e.text);
    case Kind::kKey:
      return required(e.text);
    case Kind::kFallback:
      return fallback(e);
    case Kind::kChoice:
      return evaluate(e.parts[evaluate(e.parts[0]) != 0 ? 1 : 2]);
    case Kind::kSum:
      return sum(e);
    case Kind::kCall:
      return call(e);
    case Kind::kNot:
      return evaluate(e.parts[0]) == 0 ? 1 : 0;
    case Kind::kMinus:
      return narrowed(-Wide(evaluate(e.parts[0])), fields_);
    case Kind::kBinary:
      return binary(e);
    case Kind::kNumber:
    case Kind::kText:
    case Kind::kUndefined:
    case Kind::kGiven:
      break;
  }
  return e.number;
}

std::int64_t RowValues::binary(const Expression& e) {
  const std::int64_t a = evaluate(e.parts[0]);
  const auto right = [&] { return evaluate(e.parts[1]); };
  if (e.text == "||") return a != 0 || right() != 0 ? 1 : 0;
  if (e.text == "&&") return a != 0 && right() != 0 ? 1 : 0;
  if (e.text == "//" || e.text == "/") return quotient(a, e.parts[1], e.text == "/");
  const std::int64_t b = right();
  switch (e.text.front()) {
    case '+':
      return narrowed(Wide(a) + b, fields_);
    case '-':
      return narrowed(Wide(a) - b, fields_);
    case '*':
      return narrowed(Wide(a) * b, fields_);
    case '%':
      return b == 0 ? 0 : a % b;
    case '=':
      return a == b ? 1 : 0;
    case '!':
      return a != b ? 1 : 0;
    case '<':
      return a < b || (e.text == "<=" && a == b) ? 1 : 0;
    default:
      return a > b || (e.text == ">=" && a == b) ? 1 : 0;
  }
}

std::int64_t RowValues::quotient(std::int64_t value, const Expression& by, bool exact) {
  const std::int64_t divisor = evaluate(by);
  if (fields_.failed()) return 1;
  const auto wrong = [&](const std::string& expected) {
    const std::string key = key_of(by, false);
    fields_.problem(fields_.place() + (key.empty() ? "params" : key) + ": expected " + expected + ", got " +
                    std::to_string(divisor));
  };
  if (divisor == 0) {
    wrong("an integer > 0");
    return 1;
  }
  if (exact && value % divisor != 0) wrong("a divisor of " + std::to_string(value));
  return value / divisor;
}

/// The first key that the config has, else the first that the class has a default for, else what comes last, which may
/// be a key as well. So a default never hides another name for the same thing.
std::int64_t RowValues::fallback(const Expression& e) {
  const Expression& last = e.parts.back();
  for (std::size_t i = 0; i + 1 < e.parts.size(); ++i)
    if (const auto found = optional(e.parts[i].text, false)) return *found;
  if (last.kind == Kind::kKey || (last.kind == Kind::kName && !known(last.text)))
    if (const auto found = optional(last.text, false)) return *found;
  for (std::size_t i = 0; i + 1 < e.parts.size(); ++i)
    if (const auto found = optional(e.parts[i].text, true)) return *found;
  return evaluate(last);
}

std::int64_t RowValues::sum(const Expression& e) {
  constexpr std::int64_t kMost = 4096;
  const std::int64_t times = evaluate(e.parts[0]);
  if (times > kMost) {
    fields_.problem(fields_.place() + "params: expected at most 4096 layers here, got " + std::to_string(times));
    return 1;
  }
  const bool by_layer = by_layer_;
  const std::int64_t layer = layer_;
  std::int64_t total = 0;
  for (std::int64_t n = 0; n < times && !fields_.failed(); ++n) {
    set_layer(n);
    total = narrowed(Wide(total) + evaluate(e.parts[1]), fields_);
  }
  set_layer(layer);
  by_layer_ = by_layer;
  return total;
}

std::int64_t RowValues::call(const Expression& e) {
  FunctionCall c{fields_, {}, nullptr, false, false, {0, 0}, e.real, e.text};
  std::size_t first = 0;
  if (e.function->arguments.front() == 'k') {
    c.key = e.parts[0].text;
    first = 1;
    at(fields_, c.key, [&c](const Fields& f, const std::string& key) {
      c.found = f.find(key);
      c.present = c.found != nullptr;
      c.mentioned = f.mentions(key);
      if (!c.present) c.found = f.default_of(key);
      return 0;
    });
  }
  for (std::size_t i = first; i < e.parts.size(); ++i) c.numbers[i - first] = evaluate(e.parts[i]);
  return fields_.failed() ? 1 : e.function->evaluate(c);
}

std::vector<std::string> RowValues::keys_against(std::string_view condition) {
  std::vector<std::string> keys;
  if (const Definition* found = row_.find(condition)) add_keys_against(found->value, keys);
  return keys;
}

void RowValues::add_keys_against(const Expression& e, std::vector<std::string>& keys) {
  if (e.kind == Kind::kBinary && e.text == "&&") {
    for (const Expression& part : e.parts) add_keys_against(part, keys);
  } else if (evaluate(e) == 0) {
    add_keys(e, keys, 0);
  }
}

void RowValues::add_keys(const Expression& e, std::vector<std::string>& keys, int depth) const {
  for_each_name(e, [&](bool is_key, std::string_view text) {
    if (const Definition* definition = is_key ? nullptr : row_.word(text)) {
      if (depth < 8) add_keys(definition->value, keys, depth + 1);
      return;
    }
    std::string key(text.substr(0, text.find('.')));
    if (fields_.written(key) != nullptr && std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(std::move(key));
  });
}

std::string RowValues::key_of(const Expression& e, bool written, int depth) const {
  if (depth > 6) return {};
  std::string key;
  for_each_name(e, [&](bool is_key, std::string_view text) {
    if (!key.empty()) return;
    if (const Definition* definition = is_key ? nullptr : row_.word(text)) {
      key = key_of(definition->value, written, depth + 1);
    } else if (!written || fields_.written(text) != nullptr) {
      key = std::string(text);
    }
  });
  return key;
}

}  // namespace mfu
