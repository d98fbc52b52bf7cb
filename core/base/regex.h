// A regular expression that a person gave, over names.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace mfu {

/// PCRE2, found anywhere in a name. One thread at a time.
class NamePattern {
 public:
  /// Error: no valid expression; the message has it, what is wrong and at which character.
  [[nodiscard]] static Result<NamePattern> compile(std::string_view expression);
  /// False too where the expression needs more than a million steps on this name; `gave_up` then counts it.
  [[nodiscard]] bool matches(std::string_view name);
  [[nodiscard]] std::size_t gave_up() const noexcept { return gave_up_; }

 private:
  struct Compiled;
  explicit NamePattern(std::shared_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<Compiled> compiled_;
  std::size_t gave_up_ = 0;
};

}  // namespace mfu
