// What the benchmarks measure with: CPU time of the calling thread, which a busy machine changes little, and medians.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace mfu {

/// [ns]
inline double thread_cpu_ns() {
  ::timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/// \param values at least one
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace mfu
