#include "core/config/problem.h"

#include "core/base/printable.h"

namespace mfu {
namespace {

/// Names and values in a message come from outside.
std::string one_line(const std::string& line) {
  constexpr std::size_t kLongest = 1000;
  return printable(line, kLongest);
}

}  // namespace

bool Problem::stands_in_the_way() const {
  return kind == Kind::kNoModel || (kind == Kind::kValue && !place.empty() && !instead.starts_with("using "));
}

std::string Problem::complaint() const { return one_line(place + key + (key.empty() ? "" : ": ") + text); }

std::string Problem::line() const { return instead.empty() ? complaint() : one_line(complaint() + "; " + instead); }

}  // namespace mfu
