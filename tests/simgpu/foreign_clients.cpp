#include "cupti_v2.h"
#include "tools/simgpu/cupti/test_hooks.h"

#include <cupti.h>
#include <pthread.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_subscribers.h"
#include "tools/simgpu/settings.h"

namespace mfu::sim {
namespace {

thread_local bool acting = false;

/// Marks the calling thread as a foreign client for the life of the object.
class Acting {
 public:
  Acting() { acting = true; }
  ~Acting() { acting = false; }
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;
};

constexpr std::size_t kKinetoBuffer = 4 << 20;
constexpr std::size_t kResiliencyBuffer = 8 << 20;
constexpr CUpti_ActivityKind kKinetoKinds[] = {CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET,
                                               CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                               CUPTI_ACTIVITY_KIND_RUNTIME,
                                               CUPTI_ACTIVITY_KIND_DRIVER,
                                               CUPTI_ACTIVITY_KIND_OVERHEAD};

struct Buffers {
  std::mutex mutex;
  std::vector<std::uint8_t*> own;   ///< Kineto's map: the buffers it handed out
  std::vector<std::uint8_t*> pool;  ///< nvidia-resiliency-ext's free pool: all that was completed to it
};

Buffers& buffers() {
  static Buffers* const instance = new Buffers;
  return *instance;
}

void hand_out(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records, std::size_t bytes) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, bytes));
  *size = bytes;
  *max_records = 0;
}

void kineto_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  hand_out(buffer, size, max_records, kKinetoBuffer);
  const std::lock_guard lock(buffers().mutex);
  buffers().own.push_back(*buffer);
}

/// A buffer that is not in its map is left alone (and lost to its owner).
void kineto_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) {
  const std::lock_guard lock(buffers().mutex);
  if (std::erase(buffers().own, buffer) != 0) std::free(buffer);
}

/// Takes any buffer of its pool for one that it allocated, also another client's.
void resiliency_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  {
    const std::lock_guard lock(buffers().mutex);
    if (!buffers().pool.empty()) {
      *buffer = buffers().pool.back();
      buffers().pool.pop_back();
      *size = kResiliencyBuffer;
      *max_records = 0;
      return;
    }
  }
  hand_out(buffer, size, max_records, kResiliencyBuffer);
}

void resiliency_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) {
  for (std::size_t i = 0; i < kResiliencyBuffer; i += 4096) buffer[i] = 0x5A;  // it believes that all of it is its own
  buffer[kResiliencyBuffer - 1] = 0x5A;
  const std::lock_guard lock(buffers().mutex);
  buffers().pool.push_back(buffer);
}

void freer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  hand_out(buffer, size, max_records, kKinetoBuffer);
}

void freer_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) { std::free(buffer); }

std::uint64_t tsc() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

void ignore_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

/// Kineto tries to subscribe once in the life of a process; refused, it is CPU only for the rest of it.
enum class Subscription { kNotTried, kHeld, kRefused };
std::atomic<Subscription> old_kineto{Subscription::kNotTried};

bool start_kineto(bool subscribes) {
  if (subscribes) {
    CUpti_SubscriberHandle handle = nullptr;
    if (old_kineto.load() == Subscription::kNotTried) {
      const bool got = cuptiSubscribe(&handle, ignore_callback, nullptr) == CUPTI_SUCCESS;
      if (got) cuptiEnableDomain(1, handle, CUPTI_CB_DOMAIN_RESOURCE);
      old_kineto.store(got ? Subscription::kHeld : Subscription::kRefused);
    }
    if (old_kineto.load() == Subscription::kRefused) return true;
  }
  cuptiActivityRegisterCallbacks(kineto_requested, kineto_completed);
  cuptiActivityRegisterTimestampCallback(tsc);
  for (const CUpti_ActivityKind kind : kKinetoKinds) cuptiActivityEnable(kind);
  return true;
}

bool stop_kineto(bool subscribes) {
  if (subscribes && old_kineto.load() != Subscription::kHeld) return true;
  for (const CUpti_ActivityKind kind : kKinetoKinds) cuptiActivityDisable(kind);
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  if (cupti_layout().version >= 21) {  // it takes its wish for buffers per thread back, also where that is the default
    std::uint8_t off = 0;
    std::size_t size = sizeof off;
    cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &size, &off);
  }
  return true;
}

// PyTorch's CUPTI monitor (torch/profiler/_cuspy): a subscriber that does not mind others, with its own buffers.
extern "C" {
CUptiResult sim_cuptiSubscribe_v2(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*,
                                  SubscriberParams*) asm("cuptiSubscribe_v2");
CUptiResult sim_cuptiActivityRegisterCallbacks_v2(CUpti_SubscriberHandle, BufferRequestedV2,
                                                  BufferCompletedV2) asm("cuptiActivityRegisterCallbacks_v2");
CUptiResult sim_cuptiActivityEnable_v2(CUpti_SubscriberHandle, CUpti_ActivityKind,
                                       const void*) asm("cuptiActivityEnable_v2");
}

struct Monitor {
  CUpti_SubscriberHandle handle = nullptr;
  CUptiResult refused = CUPTI_SUCCESS;
  std::atomic<std::uint64_t> kernels{0};
};
Monitor& monitor() {
  static Monitor* const instance = new Monitor;
  return *instance;
}

void monitor_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records, BufferRequestInfoV2*) {
  hand_out(buffer, size, max_records, kKinetoBuffer);
}

void monitor_completed(std::uint8_t* buffer, std::size_t, std::size_t valid, BufferCompleteInfoV2*) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    monitor().kernels.fetch_add(record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::free(buffer);
}

bool start_monitor() {
  Monitor& m = monitor();
  SubscriberParams params{};
  params.struct_size = sizeof params;
  params.name = "monitor";
  params.several = 1;
  m.refused = sim_cuptiSubscribe_v2(&m.handle, ignore_callback, nullptr, &params);
  if (m.refused != CUPTI_SUCCESS) return true;
  m.refused = sim_cuptiActivityRegisterCallbacks_v2(m.handle, monitor_requested, monitor_completed);
  if (m.refused == CUPTI_SUCCESS)
    m.refused = sim_cuptiActivityEnable_v2(m.handle, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, nullptr);
  return true;
}

/// It says what it got, for the test to read.
bool stop_monitor() {
  Monitor& m = monitor();
  if (m.refused != CUPTI_SUCCESS) {
    std::fprintf(stderr, "[monitor] refused with error %d\n", static_cast<int>(m.refused));
    return true;
  }
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fprintf(stderr, "[monitor] %llu kernels\n", static_cast<unsigned long long>(m.kernels.load()));
  return cuptiUnsubscribe(m.handle) == CUPTI_SUCCESS;
}

void sleep_ms(std::int64_t ms) {
  const timespec ts{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&ts, nullptr);
}

void* run_client(void* raw) {
  const auto& client = *static_cast<const ForeignClient*>(raw);
  pthread_setname_np(pthread_self(), "simcupti-other");
  sleep_ms(client.start_ms);
  run_foreign_client(client.kind, "start");
  if (client.stop_ms < 0) return nullptr;
  sleep_ms(client.stop_ms - client.start_ms);
  run_foreign_client(client.kind, "stop");
  return nullptr;
}

/// `first` was there before anybody else: it subscribes as the library is loaded.
[[gnu::constructor]] void subscribe_first() {
  for (const ForeignClient& client : settings().foreign) {
    if (client.kind == "first") run_foreign_client("first", "start");
  }
}

}  // namespace

bool acts_as_foreign() noexcept { return acting; }

bool run_foreign_client(std::string_view kind, std::string_view action) {
  const Acting mark;
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  const bool start = action == "start";
  if (!start && action != "stop") return false;
  if (kind == "old_kineto" || kind == "new_kineto")
    return start ? start_kineto(kind == "old_kineto") : stop_kineto(kind == "old_kineto");
  if (kind == "monitor") return start ? start_monitor() : stop_monitor();
  if (kind == "resiliency" || kind == "freer") {
    const bool frees = kind == "freer";
    if (start) {
      cuptiActivityRegisterCallbacks(frees ? freer_requested : resiliency_requested,
                                     frees ? freer_completed : resiliency_completed);
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    } else {
      cuptiActivityFlushAll(0);
      cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    }
    return true;
  }
  if (kind == "first") {
    static CUpti_SubscriberHandle handle = nullptr;
    if (start) return cuptiSubscribe(&handle, ignore_callback, nullptr) == CUPTI_SUCCESS;
    return handle != nullptr && cuptiUnsubscribe(handle) == CUPTI_SUCCESS;
  }
  return false;
}

void start_foreign_clients() {
  static std::atomic<bool> started{false};
  if (settings().foreign.empty() || started.exchange(true)) return;
  for (const ForeignClient& client : settings().foreign) {
    if (client.kind == "first") continue;
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, run_client, const_cast<ForeignClient*>(&client)) == 0) pthread_detach(thread);
  }
}

}  // namespace mfu::sim

/// Makes a foreign client do its next thing on the calling thread. `action`: start or stop.
SIM_EXPORT int simgpu_foreign(const char* kind, const char* action) {
  return mfu::sim::run_foreign_client(kind, action) ? 0 : 1;
}
