// Activity buffers of a probe: requested and completed callbacks that count what comes, and keep what a probe compares.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "driver.h"

namespace probe {

struct KernelSpan {
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
  std::uint32_t correlation;
  std::uint32_t stream;
};

// All of it static: CUPTI's callbacks carry no user data.
class Records {
 public:
  // Larger than what CUPTI is told, so that untouched pages show whether the rest is ever written.
  static constexpr std::size_t kAllocated = 8U << 20U;
  static constexpr std::size_t kAdvertised = 1U << 20U;

  static void install(Cupti& api, bool keep_spans) {
    cupti() = &api;
    keep() = keep_spans;
    check(api.p_cuptiActivityRegisterCallbacks(requested, completed), "cuptiActivityRegisterCallbacks");
  }

  static std::atomic<std::uint64_t>& kernels() {
    static std::atomic<std::uint64_t> n;
    return n;
  }
  static std::atomic<std::uint64_t>& others() {
    static std::atomic<std::uint64_t> n;
    return n;
  }
  static std::atomic<std::uint64_t>& zero_times() {
    static std::atomic<std::uint64_t> n;
    return n;
  }
  static std::atomic<std::uint64_t>& negative() {
    static std::atomic<std::uint64_t> n;
    return n;
  }
  static std::atomic<std::uint64_t>& buffers() {
    static std::atomic<std::uint64_t> n;
    return n;
  }
  static std::vector<KernelSpan>& spans() {
    static auto* all = new std::vector<KernelSpan>;
    return *all;
  }
  static std::mutex& mutex() {
    static auto* m = new std::mutex;
    return *m;
  }

  static std::uint64_t dropped() {
    std::size_t n = 0;
    cupti()->p_cuptiActivityGetNumDroppedRecords(nullptr, 0, &n);
    return n;
  }

  // Kernels of one stream that start before the one before them ended (programmatic dependent launch).
  static std::uint64_t overlapping() {
    const std::lock_guard lock(mutex());
    std::unordered_map<std::uint32_t, std::vector<KernelSpan>> by_stream;
    for (const KernelSpan& s : spans()) by_stream[s.stream].push_back(s);
    std::uint64_t n = 0;
    for (auto& [stream, list] : by_stream) {
      std::sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.begin_ns < b.begin_ns; });
      for (std::size_t i = 1; i < list.size(); ++i) n += list[i].begin_ns < list[i - 1].end_ns ? 1 : 0;
    }
    return n;
  }

 private:
  static Cupti*& cupti() {
    static Cupti* api;
    return api;
  }
  static bool& keep() {
    static bool value;
    return value;
  }

  static void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(4096, kAllocated));
    *size = *buffer == nullptr ? 0 : kAdvertised;
    *max_records = 0;
    ++buffers();
  }

  static void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    CUpti_Activity* record = nullptr;
    while (cupti()->p_cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        ++others();
        continue;
      }
      // The first 144 bytes of every kernel record since version 4 are this structure's.
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel4*>(record);
      ++kernels();
      if (kernel->start == 0 || kernel->end == 0) ++zero_times();
      if (kernel->end < kernel->start) ++negative();
      if (keep()) {
        const std::lock_guard lock(mutex());
        spans().push_back({kernel->start, kernel->end, kernel->correlationId, kernel->streamId});
      }
    }
    std::free(buffer);
  }
};

}  // namespace probe
