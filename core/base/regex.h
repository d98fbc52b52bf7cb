// Regular expressions that a person gave, over names. Every call of PCRE2 is made here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace mfu {

/// A compiled PCRE2 expression. [any thread] Matching takes no lock; it allocates once per thread that matches at the
/// same time as others.
class Regex {
 public:
  enum class Where : std::uint8_t {
    kAnywhere,  ///< somewhere in the text
    kWhole,     ///< the whole text; a dot matches new lines too, names of groups may repeat
  };
  enum class Outcome : std::uint8_t { kMatch, kNoMatch, kGaveUp };

  struct Group {
    std::string name;
    std::uint32_t number;
  };

  /// Texts of the numbered groups of a match; a group that took no part is empty with data() == nullptr.
  class Groups {
   public:
    static constexpr std::uint32_t kMost = 32;  ///< [0] is the whole match; groups beyond are not reported
    [[nodiscard]] std::string_view operator[](std::uint32_t number) const noexcept {
      return number < kMost ? text_[number] : std::string_view();
    }

   private:
    friend class Regex;
    std::array<std::string_view, kMost> text_{};
  };

  /// Error: no valid expression; the message has it, what is wrong and at which character.
  [[nodiscard]] static Result<Regex> compile(std::string_view expression, Where where);

  /// \param steps most backtracking steps before it gives up; some 200,000 take a millisecond
  [[nodiscard]] Outcome match(std::string_view text, std::uint32_t steps, Groups* groups = nullptr) const noexcept;
  [[nodiscard]] const std::vector<Group>& groups() const noexcept;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

/// A pattern that is looked for anywhere in many names. One thread at a time.
class NamePattern {
 public:
  /// Error: as Regex::compile.
  [[nodiscard]] static Result<NamePattern> compile(std::string_view expression);
  /// False too where the expression needs more than a million steps on this name; `gave_up` then counts it.
  [[nodiscard]] bool matches(std::string_view name);
  [[nodiscard]] std::size_t gave_up() const noexcept { return gave_up_; }

 private:
  explicit NamePattern(Regex regex) : regex_(std::move(regex)) {}
  Regex regex_;
  std::size_t gave_up_ = 0;
};

}  // namespace mfu
