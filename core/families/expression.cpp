#include "core/families/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace mfu {

using nlohmann::json;

namespace {

constexpr int kDeepest = 64;  // definitions within definitions; a circle ends here

bool is_name(char c) noexcept { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

}  // namespace

/// Recursive descent over one expression. What a `?:` or a `~` does not choose is parsed and not looked up.
class ExpressionParser {
 public:
  ExpressionParser(Expressions& owner, std::string_view text) : owner_(owner), text_(text) {}

  std::int64_t parse() {
    const std::int64_t value = choice();
    skip_space();
    if (at_ != text_.size()) mistake();
    return value;
  }

 private:
  using Wide = __int128;

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool eat(std::string_view token) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != token.front() || !text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void mistake() {
    owner_.fields_.problem(owner_.fields_.place() + "model_type: the table's expression \"" + std::string(text_) +
                           "\" cannot be read");
    at_ = text_.size();
  }
  std::int64_t narrow(Wide value) {
    if (value > INT64_MAX || value < INT64_MIN) {
      if (live_) owner_.fields_.problem(owner_.fields_.place() + "params: a product of dimensions is beyond 2^63");
      return 1;
    }
    return static_cast<std::int64_t>(value);
  }

  std::int64_t choice() {
    const std::int64_t condition = either();
    if (!eat("?")) return condition;
    const bool before = live_;
    live_ = before && condition != 0;
    const std::int64_t yes = choice();
    if (!eat(":")) mistake();
    live_ = before && condition == 0;
    const std::int64_t no = choice();
    live_ = before;
    return condition != 0 ? yes : no;
  }
  std::int64_t either() {
    std::int64_t value = both();
    while (eat("||")) {
      const bool before = live_;
      live_ = before && value == 0;
      const std::int64_t next = both();
      live_ = before;
      value = value != 0 || next != 0 ? 1 : 0;
    }
    return value;
  }
  std::int64_t both() {
    std::int64_t value = compared();
    while (eat("&&")) {
      const bool before = live_;
      live_ = before && value != 0;
      const std::int64_t next = compared();
      live_ = before;
      value = value != 0 && next != 0 ? 1 : 0;
    }
    return value;
  }
  std::int64_t compared() {
    const std::int64_t a = sum();
    if (eat("==")) return a == sum() ? 1 : 0;
    if (eat("!=")) return a != sum() ? 1 : 0;
    if (eat("<=")) return a <= sum() ? 1 : 0;
    if (eat(">=")) return a >= sum() ? 1 : 0;
    if (eat("<")) return a < sum() ? 1 : 0;
    if (eat(">")) return a > sum() ? 1 : 0;
    return a;
  }
  std::int64_t sum() {
    std::int64_t value = product();
    for (;;) {
      if (eat("+")) {
        value = narrow(Wide(value) + product());
      } else if (eat("-")) {
        value = narrow(Wide(value) - product());
      } else {
        return value;
      }
    }
  }
  std::int64_t product() {
    std::int64_t value = unary();
    for (;;) {
      if (eat("*")) {
        value = narrow(Wide(value) * unary());
      } else if (eat("//")) {
        value = quotient(value, unary(), false);
      } else if (eat("/")) {
        const std::size_t from = at_;
        const std::int64_t divisor = unary();
        value = quotient(value, divisor, true, trimmed(text_.substr(from, at_ - from)));
      } else if (eat("%")) {
        const std::int64_t divisor = unary();
        value = divisor == 0 ? 0 : value % divisor;
      } else {
        return value;
      }
    }
  }
  std::int64_t quotient(std::int64_t value, std::int64_t divisor, bool exact, std::string_view name = {}) {
    if (!live_) return 1;
    if (divisor == 0) {
      owner_.fields_.problem(owner_.fields_.place() + key_of(name) + ": expected an integer > 0, got 0");
      return 1;
    }
    if (exact && value % divisor != 0) {
      owner_.fields_.problem(owner_.fields_.place() + key_of(name) + ": expected a divisor of " +
                             std::to_string(value) + ", got " + std::to_string(divisor));
    }
    return value / divisor;
  }
  /// The config key that a name of the row stands for, for messages.
  [[nodiscard]] std::string key_of(std::string_view name) const {
    std::string_view key = name;
    for (int step = 0; step < 4 && owner_.defines(key); ++step) {
      key = trimmed(owner_.text(key));
      std::size_t end = 0;
      while (end < key.size() && is_name(key[end])) ++end;
      key = key.substr(0, end);
    }
    return key.empty() ? std::string("params") : std::string(key);
  }
  std::int64_t unary() {
    if (eat("-")) return narrow(-Wide(unary()));
    skip_space();
    if (at_ < text_.size() && text_[at_] == '!' && !text_.substr(at_).starts_with("!=")) {
      ++at_;
      return unary() == 0 ? 1 : 0;
    }
    return primary();
  }
  std::int64_t primary() {
    if (eat("(")) {
      const std::int64_t value = choice();
      if (!eat(")")) mistake();
      return value;
    }
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty()) {
      mistake();
      return 1;
    }
    if (std::isdigit(static_cast<unsigned char>(name.front())) != 0) {
      std::int64_t value = 0;
      for (char c : name) {
        if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
          mistake();
          return 1;
        }
        value = narrow(Wide(value) * 10 + (c - '0'));
      }
      return value;
    }
    if (eat("(")) return function(name);
    if (eat("~")) return chain(name);
    return live_ ? lookup(name) : 1;
  }

  std::int64_t lookup(std::string_view name) {
    if (name == "i") {
      owner_.by_layer_ = true;
      return owner_.layer_;
    }
    if (const auto given = owner_.given_.find(name); given != owner_.given_.end()) return given->second;
    if (owner_.defines(name)) return owner_.value(name);
    if (name.front() == '.') name.remove_prefix(1);
    return with_key(name, [](const Fields& f, const std::string& key) { return f.require(key); });
  }
  /// `a~b~x` behind the first `~`: the first key that the config has, else the first that the class has a default for,
  /// else x, which may be a key as well. So a default never hides another name for the same thing.
  std::int64_t chain(std::string_view name) {
    const std::size_t behind = at_;
    std::optional<std::int64_t> found;
    for (const bool defaults : {false, true}) {
      std::string_view key = name;
      at_ = behind;
      for (;;) {
        if (!found) found = optional(key, defaults);
        const std::size_t here = at_;
        skip_space();
        const std::size_t begin = at_;
        while (at_ < text_.size() && is_name(text_[at_])) ++at_;
        key = text_.substr(begin, at_ - begin);
        const bool is_key = !key.empty() && std::isdigit(static_cast<unsigned char>(key.front())) == 0;
        if (is_key && eat("~")) continue;
        if (is_key && !found && !defaults && !defined(key) && (at_ >= text_.size() || text_[at_] != '('))
          found = optional(key, false);
        at_ = here;
        break;
      }
    }
    const bool before = live_;
    live_ = before && !found;
    const std::int64_t fallback = unary();
    live_ = before;
    return found.value_or(fallback);
  }
  /// True if a name means something else than a key of the config.
  [[nodiscard]] bool defined(std::string_view name) const {
    return name == "i" || owner_.given_.find(name) != owner_.given_.end() || owner_.defines(name);
  }
  std::optional<std::int64_t> optional(std::string_view name, bool defaults) {
    if (!live_) return std::nullopt;
    if (name.front() == '.') name.remove_prefix(1);
    return with_key(name, [&](const Fields& f, const std::string& key) -> std::optional<std::int64_t> {
      const json* value = defaults ? f.default_of(key) : f.written(key);
      if (value == nullptr) return std::nullopt;
      if (value->is_boolean()) return value->get<bool>() ? 1 : 0;
      if (defaults) return value->is_number_integer() ? std::optional(value->get<std::int64_t>()) : std::nullopt;
      return f.integer(key, 0).value_or(1);
    });
  }
  /// Follows `a.b.c` and calls `use` with the object that holds the last key.
  template <typename Use>
  auto with_key(std::string_view path, Use use) -> decltype(use(std::declval<const Fields&>(), std::string())) {
    return with_key(owner_.fields_, path, use);
  }
  template <typename Use>
  auto with_key(const Fields& f, std::string_view path, Use use)
      -> decltype(use(std::declval<const Fields&>(), std::string())) {
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos) return use(f, std::string(path));
    return with_key(f.child(path.substr(0, dot)), path.substr(dot + 1), use);
  }
  const json* find(std::string_view path) {
    if (!live_) return nullptr;
    return with_key(path, [](const Fields& f, const std::string& key) { return f.find(key); });
  }

  std::string_view word() {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '-' || text_[at_] == '*')) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void comma() {
    if (!eat(",")) mistake();
  }

  std::int64_t function(std::string_view name) {
    std::int64_t value = 1;
    if (name == "sum") {
      value = repeated();
    } else if (name == "min" || name == "max" || name == "ceil" || name == "up") {
      const std::int64_t a = choice();
      comma();
      const std::int64_t b = choice();
      if (name == "min") value = std::min(a, b);
      if (name == "max") value = std::max(a, b);
      if (name == "ceil") value = b > 0 ? narrow((Wide(a) + b - 1) / b) : 1;
      if (name == "up") value = b > 0 ? narrow((Wide(a) + b - 1) / b * b) : 1;
    } else {
      const std::string_view key = word();
      const json* found = find(key);
      if (live_ && found == nullptr && name != "has" && name != "said")
        found = with_key(key, [](const Fields& f, const std::string& last) { return f.default_of(last); });
      if (name == "said") {
        value =
            live_ && with_key(key, [](const Fields& f, const std::string& last) { return f.mentions(last); }) ? 1 : 0;
      } else if (name == "has") {
        value = found != nullptr ? 1 : 0;
      } else if (name == "is" || name == "starts") {
        comma();
        const std::string_view expected = word();
        const std::string text = found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
        value = (name == "is" ? text == expected : text.starts_with(expected)) ? 1 : 0;
      } else if (name == "names") {
        comma();
        const std::string_view expected = word();
        const auto names = [expected](const json& text) {
          return text.is_string() && text.get_ref<const std::string&>().find(expected) != std::string::npos;
        };
        value = found != nullptr &&
                        (names(*found) || (found->is_array() && std::any_of(found->begin(), found->end(), names)))
                    ? 1
                    : 0;
      } else if (name == "above") {
        value = found != nullptr && found->is_number() && found->get<double>() > 0 ? with_range(key, *found) : 0;
      } else if (name == "len") {
        value = found != nullptr && (found->is_array() || found->is_object()) ? static_cast<std::int64_t>(found->size())
                                                                              : 0;
      } else if (name == "count") {
        comma();
        const std::string_view expected = word();
        value = 0;
        if (found != nullptr && found->is_array()) {
          value = std::count_if(found->begin(), found->end(), [&](const json& item) {
            return item.is_string() && item.get_ref<const std::string&>() == expected;
          });
        }
      } else if (name == "in") {
        comma();
        const std::int64_t wanted = choice();
        value = found != nullptr && found->is_array() &&
                        std::any_of(found->begin(), found->end(),
                                    [wanted](const json& item) {
                                      return item.is_number_integer() && item.get<std::int64_t>() == wanted;
                                    })
                    ? 1
                    : 0;
      } else if (name == "at") {
        comma();
        value = item_number(key, found, choice());
      } else if (name == "atis") {
        comma();
        const std::int64_t index = choice();
        comma();
        const std::string_view expected = word();
        const json* item = item_of(key, found, index);
        value = item != nullptr && item->is_string() && item->get_ref<const std::string&>() == expected ? 1 : 0;
      } else if (name == "own") {
        comma();
        const std::int64_t index = choice();
        comma();
        value = own_number(found, index, word());
      } else if (name == "chr") {
        comma();
        const std::int64_t index = choice();
        comma();
        const std::string_view expected = word();
        value = 0;
        if (live_) {
          const std::string text = found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
          if (index < 0 || static_cast<std::size_t>(index) >= text.size()) {
            owner_.fields_.wrong(key, "a letter for layer " + std::to_string(index), found);
          } else {
            value = expected.size() == 1 && text[static_cast<std::size_t>(index)] == expected.front() ? 1 : 0;
          }
        }
      } else if (name == "high" || name == "wide") {
        value = edge(key, found, name == "high");
      } else if (name == "scaled") {
        comma();
        value = scaled(key, found);
      } else {
        mistake();
      }
    }
    if (!eat(")")) mistake();
    return value;
  }
  /// `sum(n,expression)`: the expression for i = 0 to n - 1, added up.
  std::int64_t repeated() {
    constexpr std::int64_t kMost = 4096;
    const std::int64_t times = choice();
    comma();
    const std::size_t body = at_;
    const bool live = live_, by_layer = owner_.by_layer_;
    const std::int64_t layer = owner_.layer_;
    if (live && times > kMost) {
      owner_.fields_.problem(owner_.fields_.place() + "params: expected at most 4096 layers here, got " +
                             std::to_string(times));
    }
    std::int64_t total = 0;
    live_ = live && times > 0 && times <= kMost;
    for (std::int64_t n = 0; n < (live_ ? times : 1); ++n) {
      if (live_) owner_.set_layer(n);
      at_ = body;
      const std::int64_t one = choice();
      if (live_) total = narrow(Wide(total) + one);
      if (owner_.fields_.failed()) break;
    }
    if (live_) owner_.set_layer(layer);
    owner_.by_layer_ = by_layer;
    live_ = live;
    return total;
  }
  const json* item_of(std::string_view key, const json* list, std::int64_t index) {
    if (!live_) return nullptr;
    if (list == nullptr || !list->is_array() || index < 0 || static_cast<std::size_t>(index) >= list->size()) {
      owner_.fields_.wrong(key, "a list with an item for layer " + std::to_string(index), list);
      return nullptr;
    }
    return &(*list)[static_cast<std::size_t>(index)];
  }
  std::int64_t item_number(std::string_view key, const json* list, std::int64_t index) {
    if (list != nullptr && list->is_number_integer()) return with_range(key, *list);  // one number for all layers
    const json* item = item_of(key, list, index);
    if (item == nullptr) return 1;
    if (item->is_boolean()) return item->get<bool>() ? 1 : 0;
    return with_range(key, *item);
  }
  std::int64_t own_number(const json* layers, std::int64_t index, std::string_view field) {
    if (!live_ || layers == nullptr || !layers->is_object()) return 0;
    for (const auto& [key, values] : layers->items()) {
      std::int64_t number = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
      if (error != std::errc() || end != key.data() + key.size() || number != index || !values.is_object()) continue;
      const auto found = values.find(std::string(field));
      return found == values.end() || found->is_null() ? 0 : with_range(field, *found);
    }
    return 0;
  }
  std::int64_t with_range(std::string_view key, const json& value) {
    if (value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= kMaxDimension)
      return value.get<std::int64_t>();
    owner_.fields_.wrong(key, "integers from 0 to 2^31", &value);
    return 1;
  }
  std::int64_t edge(std::string_view key, const json* found, bool high) {
    if (!live_) return 1;
    const json* value = found;
    if (found != nullptr && found->is_array() && !found->empty()) value = high ? &found->front() : &found->back();
    if (found != nullptr && found->is_object()) {
      const auto side = found->find(high ? "height" : "width");
      value = side == found->end() ? nullptr : &*side;
    }
    if (value != nullptr && value->is_number_integer() && value->get<std::int64_t>() > 0 &&
        value->get<std::int64_t>() <= kMaxDimension)
      return value->get<std::int64_t>();
    owner_.fields_.wrong(key, "a size in pixels", found);
    return 1;
  }
  std::int64_t scaled(std::string_view key, const json* found) {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_name(text_[at_]))) ++at_;
    double factor = std::strtod(std::string(text_.substr(begin, at_ - begin)).c_str(), nullptr);
    comma();
    const std::int64_t n = choice();
    if (!live_) return 1;
    if (found != nullptr) {
      if (!found->is_number()) {
        owner_.fields_.wrong(key, "a number", found);
        return 1;
      }
      factor = found->get<double>();
    }
    const double product = factor * static_cast<double>(n);
    if (!(product >= 0) || product > 9.0e15) {
      owner_.fields_.wrong(key, "a small number >= 0", found);
      return 1;
    }
    return static_cast<std::int64_t>(product + 1e-9);
  }

  Expressions& owner_;
  std::string_view text_;
  std::size_t at_ = 0;
  bool live_ = true;
};

Expressions::Expressions(std::initializer_list<std::string_view> definitions, const Fields& fields) : fields_(fields) {
  for (std::string_view text : definitions) define(text);
}

void Expressions::define(std::string_view definitions) {
  while (!definitions.empty()) {
    const std::size_t end = definitions.find(';');
    const std::string_view one = definitions.substr(0, end);
    definitions.remove_prefix(end == std::string_view::npos ? definitions.size() : end + 1);
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos) continue;
    definitions_[trimmed(one.substr(0, equals))] = trimmed(one.substr(equals + 1));
  }
  known_.clear();
  known_of_layer_.clear();
}

void Expressions::give(std::string_view name, std::int64_t value) { given_.insert_or_assign(std::string(name), value); }

void Expressions::set_layer(std::int64_t i) {
  layer_ = i;
  known_of_layer_.clear();
}

bool Expressions::defines(std::string_view name) const { return definitions_.contains(name); }

bool Expressions::speaks_of(std::string_view word) const {
  return !word.empty() && std::any_of(definitions_.begin(), definitions_.end(), [word](const auto& definition) {
    return definition.second.find(word) != std::string_view::npos;
  });
}

std::string_view Expressions::text(std::string_view name) const {
  const auto found = definitions_.find(name);
  return found == definitions_.end() ? std::string_view() : found->second;
}

std::int64_t Expressions::value(std::string_view name) {
  if (fields_.failed()) return 1;
  if (const auto known = known_.find(name); known != known_.end()) return known->second;
  if (const auto known = known_of_layer_.find(name); known != known_of_layer_.end()) {
    by_layer_ = true;
    return known->second;
  }
  const auto found = definitions_.find(name);
  if (found == definitions_.end() || depth_ >= kDeepest) {
    fields_.problem(fields_.place() + "model_type: the table has no \"" + std::string(name) + "\" for it");
    return 1;
  }
  ++depth_;
  const bool by_layer = std::exchange(by_layer_, false);
  const std::int64_t value = ExpressionParser(*this, found->second).parse();
  const bool of_layer = by_layer_;
  by_layer_ = by_layer || of_layer;
  --depth_;
  if (fields_.failed()) return 1;
  (of_layer ? known_of_layer_ : known_)[found->first] = value;
  return value;
}

std::int64_t Expressions::positive(std::string_view name) {
  const std::int64_t result = value(name);
  if (result > 0 || fields_.failed()) return fields_.failed() ? 1 : result;
  const std::string key = key_of(name, 0);
  fields_.problem(fields_.place() + (key.empty() ? std::string(name) : key) +
                  ": expected an integer > 0, at most 2^31, got " + std::to_string(result));
  return 1;
}

std::string Expressions::key_of(std::string_view name, int depth) const {
  if (depth > 6) return {};
  const std::string_view words = text(name);
  for (std::size_t at = 0; at < words.size();) {
    std::size_t end = at;
    while (end < words.size() && is_name(words[end])) ++end;
    if (end == at) {
      ++at;
      continue;
    }
    std::string_view word = words.substr(at, end - at);
    at = end;
    if (word.front() == '.') word.remove_prefix(1);
    if (word.empty() || word == name) continue;
    if (definitions_.contains(word)) {
      if (std::string key = key_of(word, depth + 1); !key.empty()) return key;
    } else if (fields_.written(word) != nullptr) {
      return std::string(word);
    }
  }
  return {};
}

}  // namespace mfu
