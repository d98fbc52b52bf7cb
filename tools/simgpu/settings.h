// The script of the simulated GPU. See README.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mfu::sim {

/// One simulated device. Defaults: an H100 SXM.
struct DeviceSpec {
  std::string name = "Simulated H100 80GB HBM3";
  std::uint32_t sm_count = 132;
  std::uint32_t clock_khz = 1'980'000;
  std::uint32_t memory_clock_khz = 2'619'000;
  std::uint32_t bus_bits = 5120;
  std::uint32_t cc_major = 9, cc_minor = 0;
  std::uint64_t memory_bytes = 80ull << 30;
  double flop_per_s = 989.4e12;  ///< rate of `flop_per_block` kernels at an efficiency of 1
  double bytes_per_s = 3.35e12;  ///< the same for `bytes_per_block`
};

/// A foreign CUPTI client on a thread, at times counted from the first subscription or enabled kind [ms].
struct ForeignClient {
  std::string kind;  ///< old_kineto, new_kineto, monitor, resiliency, freer, first
  std::int64_t start_ms = 0;
  std::int64_t stop_ms = -1;  ///< -1: never
};

struct Settings {
#define SETTING(type, member, initial, variable) type member = initial;
#include "tools/simgpu/settings.inc"
#undef SETTING
  std::vector<DeviceSpec> devices{DeviceSpec{}};
  std::vector<std::pair<std::string, double>> flop_per_block;  ///< of kernels without PTX text, by a part of their name
  bool memory_contents = false;                                ///< device memory holds what was copied there
  std::vector<std::uint32_t> refused_kinds;
  std::uint64_t drop_every = 0, drop_burst = 0;
  std::vector<ForeignClient> foreign;
};

/// Of this process; the same from the first call on.
const Settings& settings();
/// From the environment, where the tests add it.
[[gnu::weak]] void read_settings(Settings& settings);
/// Waits, or answers in place of the function, where a test wants that. \return 0: the function does its work.
[[gnu::weak]] int run_fault(const char* function);

/// True in `rate` of all cases; which ones follows from `counter` and `salt` alone.
[[nodiscard]] bool hit(double rate, std::uint64_t counter, std::uint64_t salt) noexcept;

/// CLOCK_REALTIME and CLOCK_MONOTONIC [ns].
[[nodiscard]] std::int64_t realtime_ns() noexcept;
[[nodiscard]] std::int64_t monotonic_ns() noexcept;
/// The operating system's id of the calling thread.
[[nodiscard]] std::uint32_t thread_id() noexcept;

/// Keeps the calling thread busy for so long [ns].
void burn(std::int64_t ns) noexcept;

/// Aborts with one line on stderr: the client broke a rule of the real libraries. Nothing happens when SIMGPU_STRICT=0.
void rule_broken(const char* what) noexcept;

}  // namespace mfu::sim
