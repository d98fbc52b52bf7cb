#include "tools/simgpu/settings.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace mfu::sim {
namespace {

std::int64_t clock_ns(clockid_t clock) noexcept {
  ::timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

const Settings& settings() {
  static const Settings* const instance = [] {
    auto* s = new Settings;  // never freed: the libraries stay in use until the last instruction of the process
    if (read_settings != nullptr) read_settings(*s);
    return s;
  }();
  return *instance;
}

std::int64_t realtime_ns() noexcept { return clock_ns(CLOCK_REALTIME); }
std::int64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

std::uint32_t thread_id() noexcept {
  static thread_local const auto id = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return id;
}

void burn(std::int64_t ns) noexcept {
  if (ns <= 0) return;
  const std::int64_t until = monotonic_ns() + ns;
  while (monotonic_ns() < until) {
  }
}

void rule_broken(const char* what) noexcept {
  if (!settings().strict) return;
  std::fprintf(stderr, "[simgpu] the client broke a rule: %s\n", what);
  std::abort();
}

bool hit(double rate, std::uint64_t counter, std::uint64_t salt) noexcept {
  if (rate <= 0) return false;
  std::uint64_t x = counter + salt * 0x9E3779B97F4A7C15ull + 0x632BE59BD9B4E019ull;  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1p-53 < rate;
}

}  // namespace mfu::sim
