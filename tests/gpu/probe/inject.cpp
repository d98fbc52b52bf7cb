// An injection library that watches instead of measuring: named by CUDA_INJECTION64_PATH, it writes one JSON object to
// PROBE_OUT when the process ends.
//   PROBE_MODE=refuse   InitializeInjection returns 0 and does nothing else
//   PROBE_MODE=ids      which launches driver callbacks and runtime callbacks see, against the kernel records' ids
//   PROBE_MODE=zeroed   CUPTI told that buffers come zeroed, then silence: what a later profiler gets from that
#include <atomic>
#include <fstream>
#include <set>
#include <string>

#include "driver.h"
#include "records.h"

namespace probe {
namespace {

struct State {
  std::mutex mutex;
  std::set<std::uint32_t> driver_ids;
  std::set<std::uint32_t> runtime_ids;
  std::string calls;  // result of each CUPTI call made inside InitializeInjection
  Cupti* cupti = nullptr;
};
State& state() {
  static auto* s = new State;
  return *s;
}

void note(const char* what, CUptiResult result) {
  State& s = state();
  s.calls +=
      (s.calls.empty() ? "" : ", ") + std::string("\"") + what + "\": " + std::to_string(static_cast<int>(result));
}

void CUPTIAPI on_launch(void*, CUpti_CallbackDomain domain, CUpti_CallbackId, const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (call->callbackSite != CUPTI_API_ENTER) return;
  const std::lock_guard lock(state().mutex);
  (domain == CUPTI_CB_DOMAIN_DRIVER_API ? state().driver_ids : state().runtime_ids).insert(call->correlationId);
}

void write_result() {
  State& s = state();
  const char* path = std::getenv("PROBE_OUT");
  if (path == nullptr) return;
  if (s.cupti != nullptr) s.cupti->p_cuptiActivityFlushAll(1);
  std::uint64_t by_driver = 0;
  std::uint64_t by_runtime_only = 0;
  std::uint64_t by_neither = 0;
  {
    const std::lock_guard lock(s.mutex);
    const std::lock_guard records(Records::mutex());
    for (const KernelSpan& span : Records::spans()) {
      if (s.driver_ids.count(span.correlation) != 0) {
        ++by_driver;
      } else if (s.runtime_ids.count(span.correlation) != 0) {
        ++by_runtime_only;
      } else {
        ++by_neither;
      }
    }
  }
  std::ofstream out(path);
  out << "{\"calls\": {" << s.calls << "}, \"driver_callbacks\": " << s.driver_ids.size()
      << ", \"runtime_callbacks\": " << s.runtime_ids.size() << ", \"kernels\": " << Records::kernels()
      << ", \"kernels_by_driver_id\": " << by_driver << ", \"kernels_by_runtime_id_only\": " << by_runtime_only
      << ", \"kernels_by_neither\": " << by_neither << ", \"zero_times\": " << Records::zero_times()
      << ", \"negative\": " << Records::negative() << ", \"overlapping\": " << Records::overlapping() << "}\n";
}

int initialize() {
  const char* mode_text = std::getenv("PROBE_MODE");
  const std::string mode = mode_text == nullptr ? "" : mode_text;
  std::atexit(write_result);
  if (mode == "refuse") return 0;
  const char* path = std::getenv("PROBE_CUPTI");
  if (path == nullptr) return 1;
  State& s = state();
  s.cupti = new Cupti(path);
  Cupti& cupti = *s.cupti;
  if (mode == "zeroed") {
    std::uint8_t on = 1;
    std::size_t size = sizeof(on);
    note("ZEROED_OUT", cupti.p_cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &on));
    s.cupti = nullptr;
    return 1;
  }
  CUpti_SubscriberHandle subscriber = nullptr;
  note("cuptiSubscribe", cupti.p_cuptiSubscribe(&subscriber, on_launch, nullptr));
  for (const CUpti_CallbackId id : kDriverLaunches) {
    cupti.p_cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
  }
  for (const CUpti_CallbackId id : kRuntimeLaunches) {
    cupti.p_cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, id);
  }
  Records::install(cupti, true);
  note("CONCURRENT_KERNEL", cupti.p_cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  note("MEMCPY", cupti.p_cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
  note("MEMSET", cupti.p_cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
  return 1;
}

}  // namespace
}  // namespace probe

extern "C" __attribute__((visibility("default"))) int InitializeInjection() { return probe::initialize(); }
