#include "core/base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

namespace mfu {

struct NamePattern::Compiled {
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* limits = nullptr;
};

Result<NamePattern> NamePattern::compile(std::string_view expression) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), 0, &error, &offset, nullptr);
  if (compiled->code == nullptr) {
    std::array<unsigned char, 128> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return Error{"expected a regular expression, got \"" + std::string(expression) +
                 "\": " + reinterpret_cast<const char*>(text.data()) + " at character " + std::to_string(offset)};
  }
  compiled->data = pcre2_match_data_create(1, nullptr);
  compiled->limits = pcre2_match_context_create(nullptr);
  if (compiled->data == nullptr || compiled->limits == nullptr) return Error{"no memory for a regular expression"};
  pcre2_set_match_limit(compiled->limits, 1'000'000);
  return NamePattern(std::move(compiled));
}

bool NamePattern::matches(std::string_view name) {
  // 0: it matched with more groups than were asked for.
  const int status = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                 compiled_->data, compiled_->limits);
  if (status < 0 && status != PCRE2_ERROR_NOMATCH) ++gave_up_;
  return status >= 0;
}

}  // namespace mfu
