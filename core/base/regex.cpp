#include "core/base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <atomic>
#include <utility>

namespace mfu {
namespace {

/// The memory of one match, besides the expression. It carries the limit, so it belongs to one thread at a time.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(Regex::Groups::kMost, nullptr);
  pcre2_match_context* limits = pcre2_match_context_create(nullptr);

  Scratch() {
    if (limits != nullptr) pcre2_set_heap_limit(limits, 1024);  // KiB
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
  }
  [[nodiscard]] bool usable() const noexcept { return data != nullptr && limits != nullptr; }
};

/// Matching may happen on any host thread: taken from here, put back after. Nothing to lock.
class ScratchPool {
 public:
  Scratch* take() noexcept {
    for (auto& slot : slots_)
      if (Scratch* scratch = slot.exchange(nullptr, std::memory_order_acquire)) return scratch;  // pairs with put
    auto* made = new (std::nothrow) Scratch;
    if (made != nullptr && made->usable()) return made;
    delete made;
    return nullptr;
  }
  void put(Scratch* scratch) noexcept {
    for (auto& slot : slots_) {
      Scratch* none = nullptr;
      if (slot.compare_exchange_strong(none, scratch, std::memory_order_release, std::memory_order_relaxed)) return;
    }
    delete scratch;
  }

 private:
  std::array<std::atomic<Scratch*>, 16> slots_{};
};

ScratchPool& pool() noexcept {
  static ScratchPool instance;
  return instance;
}

}  // namespace

struct Regex::Compiled {
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() { pcre2_code_free(code); }

  pcre2_code* code = nullptr;
  std::vector<Group> groups;
};

Result<Regex> Regex::compile(std::string_view expression, Where where) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::uint32_t options =
      where == Where::kWhole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DUPNAMES | PCRE2_DOTALL : 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), options, &error,
                                 &offset, nullptr);
  if (compiled->code == nullptr) {
    std::array<unsigned char, 128> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return Error{"expected a regular expression, got \"" + std::string(expression) +
                 "\": " + reinterpret_cast<const char*>(text.data()) + " at character " + std::to_string(offset)};
  }
  std::uint32_t names = 0;
  std::uint32_t entry_size = 0;
  PCRE2_SPTR table = nullptr;
  pcre2_pattern_info(compiled->code, PCRE2_INFO_NAMECOUNT, &names);
  pcre2_pattern_info(compiled->code, PCRE2_INFO_NAMEENTRYSIZE, &entry_size);
  pcre2_pattern_info(compiled->code, PCRE2_INFO_NAMETABLE, &table);
  for (std::uint32_t i = 0; i < names; ++i, table += entry_size) {
    const std::uint32_t number = (static_cast<std::uint32_t>(table[0]) << 8) | table[1];
    compiled->groups.push_back({reinterpret_cast<const char*>(table + 2), number});
  }
  return Regex(std::move(compiled));
}

Regex::Outcome Regex::match(std::string_view text, std::uint32_t steps, Groups* groups) const noexcept {
  Scratch* scratch = pool().take();
  if (scratch == nullptr) return Outcome::kGaveUp;
  pcre2_set_match_limit(scratch->limits, steps);
  // 0: it matched with more groups than there is room for.
  const int status = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                                 scratch->data, scratch->limits);
  if (groups != nullptr && status >= 0) {
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(scratch->data);
    const std::uint32_t count = status == 0 ? Groups::kMost : static_cast<std::uint32_t>(status);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (at[2 * i] != PCRE2_UNSET && at[2 * i] <= at[2 * i + 1])
        groups->text_[i] = text.substr(at[2 * i], at[2 * i + 1] - at[2 * i]);
    }
  }
  pool().put(scratch);
  if (status >= 0) return Outcome::kMatch;
  return status == PCRE2_ERROR_NOMATCH ? Outcome::kNoMatch : Outcome::kGaveUp;
}

const std::vector<Regex::Group>& Regex::groups() const noexcept { return compiled_->groups; }

Result<NamePattern> NamePattern::compile(std::string_view expression) {
  Result<Regex> regex = Regex::compile(expression, Regex::Where::kAnywhere);
  if (!regex) return regex.error();
  return NamePattern(std::move(*regex));
}

bool NamePattern::matches(std::string_view name) {
  const Regex::Outcome outcome = regex_.match(name, 1'000'000);
  gave_up_ += outcome == Regex::Outcome::kGaveUp ? 1 : 0;
  return outcome == Regex::Outcome::kMatch;
}

}  // namespace mfu
