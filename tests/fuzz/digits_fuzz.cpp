// Names that differ in their digits only share a cache entry where depends_on_digits says no: then the expression must
// treat them alike. Input: expression, a zero byte, name.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/regex.h"
#include "core/ranges/digit_dependence.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  if (zero == std::string_view::npos || zero > 200 || size - zero > 200) return 0;
  const std::string_view expression = input.substr(0, zero);
  const std::string name(input.substr(zero + 1));
  if (mfu::depends_on_digits(expression)) return 0;
  const auto regex = mfu::Regex::compile(expression, mfu::Regex::Where::kWhole);
  if (!regex) return 0;
  const auto first = regex->match(name, 20'000);
  // Every run of digits replaced by other runs, shorter and longer.
  for (const char* digits : {"0", "7", "19", "5555555555"}) {
    std::string other;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const auto digit = [&](std::size_t at) { return name[at] >= '0' && name[at] <= '9'; };
      if (!digit(i)) {
        other += name[i];
      } else if (i == 0 || !digit(i - 1)) {
        other += digits;
      }
    }
    const auto second = regex->match(other, 20'000);
    if (first != mfu::Regex::Outcome::kGaveUp && second != mfu::Regex::Outcome::kGaveUp && first != second)
      std::abort();
  }
  return 0;
}
