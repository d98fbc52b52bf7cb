#include "core/config/problem.h"

namespace mfu {
namespace {

/// Names and values in a message come from outside.
std::string one_line(std::string line) {
  constexpr std::size_t kLongest = 1000;
  if (line.size() > kLongest) line.resize(kLongest);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

}  // namespace

std::string Problem::complaint() const { return one_line(place + key + (key.empty() ? "" : ": ") + text); }

std::string Problem::line() const { return instead.empty() ? complaint() : one_line(complaint() + "; " + instead); }

}  // namespace mfu
