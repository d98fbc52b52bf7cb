#include "core/families/expression.h"

#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "core/base/number_text.h"

namespace mfu {
namespace {

using Kind = Expression::Kind;

constexpr int kDeepestBrackets = 64;  // brackets within brackets

bool is_space(char c) noexcept { return c == ' ' || c == '\t' || c == '\n'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_name(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

/// Recursive descent. After the first mistake every part is an empty number.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Expression> parse() {
    Expression whole = choice();
    skip_space();
    if (at_ != text_.size()) mistake("the end");
    if (mistake_) return *std::move(mistake_);
    return whole;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  [[nodiscard]] bool sees(std::string_view token) {
    skip_space();
    return text_.substr(at_).starts_with(token);
  }
  bool eat(std::string_view token) {
    if (!sees(token)) return false;
    at_ += token.size();
    return true;
  }
  void need(std::string_view token) {
    if (!eat(token)) mistake("`" + std::string(token) + "`");
  }
  void mistake(const std::string& expected) {
    if (!mistake_) mistake_ = Error{"expected " + expected + " before `" + std::string(text_.substr(at_, 24)) + "`"};
    at_ = text_.size();
  }
  template <typename... Parts>
  static Expression node(Kind kind, std::string_view text, Parts&&... parts) {
    Expression e;
    e.kind = kind;
    e.text = text;
    e.parts.reserve(sizeof...(parts));
    (e.parts.push_back(std::forward<Parts>(parts)), ...);
    return e;
  }

  Expression choice() {
    if (++depth_ > kDeepestBrackets) mistake("fewer brackets");
    Expression condition = binary(0);
    if (eat("?")) {
      Expression yes = choice();
      need(":");
      condition = node(Kind::kChoice, {}, std::move(condition), std::move(yes), choice());
    }
    --depth_;
    return condition;
  }
  /// The operators by how loosely they bind; within a level the longer ones first.
  Expression binary(std::size_t level) {
    static constexpr std::string_view kLevels[][6] = {
        {"||"}, {"&&"}, {"==", "!=", "<=", ">=", "<", ">"}, {"+", "-"}, {"*", "//", "/", "%"}};
    constexpr std::size_t kComparisons = 2;
    if (level == std::size(kLevels)) return unary();
    Expression left = binary(level + 1);
    for (bool more = true; more;) {
      more = false;
      for (std::string_view symbol : kLevels[level]) {
        if (symbol.empty() || !eat(symbol)) continue;
        left = node(Kind::kBinary, symbol, std::move(left), binary(level + 1));
        more = level != kComparisons;
        break;
      }
    }
    return left;
  }
  Expression unary() {
    if (++depth_ > 2 * kDeepestBrackets) mistake("fewer signs");
    Expression e;
    if (eat("-")) {
      e = node(Kind::kMinus, {}, unary());
    } else if (!sees("!=") && eat("!")) {
      e = node(Kind::kNot, {}, unary());
    } else {
      e = primary();
    }
    --depth_;
    return e;
  }
  std::string_view name() {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (begin == at_) mistake("a name");
    return text_.substr(begin, at_ - begin);
  }
  std::string_view quoted() {
    need("\"");
    const std::size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) {
      mistake("`\"`");
      return {};
    }
    const std::string_view inside = text_.substr(at_, end - at_);
    at_ = end + 1;
    return inside;
  }

  Expression primary() {
    if (eat("(")) {
      Expression inside = choice();
      need(")");
      return inside;
    }
    const std::string_view word = name();
    if (mistake_) return {};
    if (is_digit(word.front())) return number(word);
    if (eat("(")) return call(word);
    if (sees("~")) return fallback(word);
    if (word == "layer") return node(Kind::kLayer, word);
    if (word.front() == '.') return node(Kind::kKey, word.substr(1));
    return node(Kind::kName, word);
  }
  Expression number(std::string_view word) {
    Expression e;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), e.number);
    if (error != std::errc() || end != word.data() + word.size()) mistake("an integer");
    return e;
  }
  double fraction(std::string_view word) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) mistake("a decimal fraction");
    return value;
  }
  /// `a ~ b ~ x` from its first key on.
  Expression fallback(std::string_view key) {
    Expression e = node(Kind::kFallback, {});
    while (eat("~")) {
      e.parts.push_back(node(Kind::kKey, key));
      const std::size_t here = (skip_space(), at_);
      if (here < text_.size() && is_name(text_[here]) && !is_digit(text_[here])) {
        key = name();
        if (sees("~")) continue;
        at_ = here;
      }
      e.parts.push_back(unary());
      break;
    }
    return e;
  }
  Expression call(std::string_view name_of_function) {
    Expression e = node(Kind::kCall, {});
    if (name_of_function == "sum") {
      e.kind = Kind::kSum;
      e.parts.push_back(choice());
      need(",");
      e.parts.push_back(choice());
      need(")");
      return e;
    }
    e.function = find_function(name_of_function);
    if (e.function == nullptr) {
      at_ -= name_of_function.size() + 1;
      mistake("a function that there is");
      return e;
    }
    for (char kind : e.function->arguments) {
      if (kind != e.function->arguments.front() || !e.parts.empty()) need(",");
      if (kind == 'k') e.parts.push_back(node(Kind::kKey, name()));
      if (kind == 'n') e.parts.push_back(choice());
      if (kind == 'r') e.real = parse_number(name()).value_or(0);
      if (kind == 'w') e.text = quoted();
      if (kind == 'f') e.text = name();
    }
    need(")");
    return e;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::optional<Error> mistake_;
};

}  // namespace

Result<Expression> parse_expression(std::string_view text) {
  Expression whole;
  whole.text = text;
  if (text == "undefined" || text == "given") {
    whole.kind = text == "given" ? Kind::kGiven : Kind::kUndefined;
    return whole;
  }
  if (text.size() >= 2 && text.front() == '"' && text.find('"', 1) == text.size() - 1) {
    whole.kind = Kind::kText;
    whole.text = text.substr(1, text.size() - 2);
    return whole;
  }
  return Parser(text).parse();
}

}  // namespace mfu
