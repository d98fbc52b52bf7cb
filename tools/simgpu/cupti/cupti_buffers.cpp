#include "tools/simgpu/cupti/cupti_buffers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/simgpu/cupti/test_hooks.h"

namespace mfu::sim {

extern const char* const kBuiltCuptiVersion;  // generated per build of the library

namespace {

// A device buffer has 3.2 MB by default, and took 100,000 kernel nodes where that was measured.
constexpr std::uint64_t kDeviceBufferBytes = 3'200'000, kTimedNodeBytes = 32;

/// One record that has a place in a client's buffer, and gets its bytes when the buffer is handed back.
struct Pending {
  std::uint32_t kind = 0;
  std::uint32_t thread = 0;
  Activity activity;  ///< device activities; API records keep only the times here
  ApiRecord api{};
  std::uint32_t external_kind = 0;
  std::uint64_t external_id = 0;
  bool untimed = false;  ///< the device had no buffer left to write its times into
  bool counted = true;   ///< the truth records its fate: once, where several clients get it
};

struct Batch {
  std::uint32_t client = 0;
  std::uint8_t* buffer = nullptr;
  std::size_t capacity = 0, used = 0, max_records = 0;
  std::vector<Pending> records;
  std::int64_t max_end_ns = 0;
};

/// Where records go until the buffer is full: one per process, or one per thread.
struct Holder {
  std::mutex mutex;
  Batch open;
  std::atomic<bool> thread_ended{false};
};

struct State {
  std::mutex mutex;  ///< guards what follows; never held while a client's callback runs
  std::array<BufferCallbacks, kClients> callbacks;
  std::list<Batch> closed;  ///< full, or flushed while something in them was still running
  std::vector<std::shared_ptr<Holder>> holders;
  std::uint64_t flush_requests = 0, flushes_done = 0;
  bool flush_forced = false;
  std::uint32_t period_ms = 0;
  bool worker_running = false;
  std::condition_variable wake, done;
  std::uint64_t deliveries = 0;       ///< rounds that began so far
  std::set<std::uint64_t> under_way;  ///< those that have not ended
  std::condition_variable delivery_ended;

  std::array<Holder, kClients> shared;
  std::atomic<bool> per_thread{false};
  std::array<std::atomic<std::size_t>, kClients> dropped{};
  std::atomic<std::uint64_t> record_count{0};
  std::atomic<std::uint64_t> graph_records{0};  ///< of kernel nodes, since the start
  std::atomic<std::uint64_t> pool_limit{250};   ///< CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT: its default
  std::atomic<bool> zeroed{true};               ///< CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER is not set
};

State& state() {
  static State* const instance = [] {
    auto* s = new State;  // leaked: threads may still launch while the process exits
    const int wanted = settings().per_thread;
    s->per_thread = wanted >= 0 ? wanted != 0 : cupti_layout().version >= 130000;
    for (std::uint32_t client = 0; client < kClients; ++client) {
      s->shared[client].open.client = client;
      s->holders.emplace_back(std::shared_ptr<Holder>(), &s->shared[client]);
    }
    return s;
  }();
  return *instance;
}

Holder& holder(std::uint32_t client) {
  State& s = state();
  if (!s.per_thread.load(std::memory_order_relaxed)) return s.shared[client];
  // Its records outlive the thread: flush_buffers lets go of it when they are out.
  struct Own {
    std::array<Holder*, kClients> of{};
    ~Own() {
      for (Holder*& holder : of)
        if (holder != nullptr) std::exchange(holder, nullptr)->thread_ended.store(true, std::memory_order_release);
    }
  };
  static thread_local Own own;
  if (own.of[client] == nullptr) {
    auto holder = std::make_shared<Holder>();
    holder->open.client = client;
    own.of[client] = holder.get();
    const std::lock_guard lock(s.mutex);
    s.holders.push_back(std::move(holder));
  }
  return *own.of[client];
}

void set_fate(const Pending& p, Fate fate) {
  if (const Driver* driver = connected_driver(); driver != nullptr && driver->truth_fate != nullptr && p.counted)
    driver->truth_fate(p.activity.truth, fate);
}

void drop(const Pending& p, std::uint32_t client) {
  state().dropped[client].fetch_add(1);
  set_fate(p, Fate::kDropped);
}

bool is_device_record(const Pending& p) {
  return p.kind != kKindDriver && p.kind != kKindRuntime && p.activity.end_ns != 0;
}

void write_pending(const Pending& p, std::uint64_t serial, bool foreign, std::int64_t now, std::uint8_t* out) {
  RecordView view{.kind = p.kind};
  view.activity = &p.activity;
  view.api = &p.api;
  view.thread = p.thread;
  view.external_kind = p.external_kind;
  view.external_id = p.external_id;
  view.external_correlation = p.api.correlation;
  view.begin_ns = p.activity.begin_ns;
  view.end_ns = p.activity.end_ns;
  Fate fate = foreign ? Fate::kForeign : Fate::kDelivered;
  const bool running = p.activity.end_ns > now;  // handed back by force; CUPTI 13.0 on an H100 gives no begin either
  if (is_device_record(p) && (running || p.untimed)) {
    view.begin_ns = view.end_ns = 0;
    fate = running ? Fate::kIncomplete : Fate::kZeroed;
  }
  if (p.kind == kKindConcurrentKernel || p.kind == kKindKernel)
    view.name = p.activity.name != nullptr ? p.activity.name : "graph node";
  if (spoil_record != nullptr) spoil_record(view, serial, fate);
  write_record(cupti_layout(), view, out);
  set_fate(p, fate);
}

/// Writes the records of a batch into the client's buffer and hands it back. The caller holds no lock.
void deliver(Batch batch) {
  State& s = state();
  const Settings& script = settings();
  const Driver* driver = connected_driver();
  BufferCallbacks callbacks;
  {
    const std::lock_guard lock(s.mutex);
    callbacks = s.callbacks[batch.client];
  }
  const std::uint64_t first = s.record_count.fetch_add(batch.records.size());
  if (script.shuffle) {
    std::mt19937_64 random(first);
    std::shuffle(batch.records.begin(), batch.records.end(), random);
  }
  const std::int64_t now = driver->now_ns();
  std::size_t at = 0;
  for (std::size_t i = 0; i < batch.records.size(); ++i) {
    write_pending(batch.records[i], first + i, callbacks.foreign, now, batch.buffer + at);
    at += record_bytes(cupti_layout(), batch.records[i].kind);
  }
  std::size_t valid = at;
  if (valid > 0 && hit(script.truncate_rate, first, 5)) {
    valid -= record_bytes(cupti_layout(), batch.records.back().kind) / 2;
    set_fate(batch.records.back(), Fate::kTruncated);
  }
  if (callbacks.completed) {
    ThreadState& thread = *driver->thread();
    if (begin_delivery != nullptr) begin_delivery(batch.buffer);
    ++thread.buffer_callback;
    timed(kCostCompleted, [&] { callbacks.completed(batch.buffer, batch.capacity, valid); });
    --thread.buffer_callback;
  }
  if (end_delivery != nullptr) end_delivery(callbacks.completed ? batch.buffer : nullptr, callbacks.foreign ? 0 : at);
}

/// Hands back every closed batch that is complete (all of them when forced).
void deliver_closed(bool forced) {
  State& s = state();
  std::list<Batch> ready;
  std::uint64_t round = 0;
  {
    const std::lock_guard lock(s.mutex);
    const std::int64_t now = connected_driver()->now_ns();
    const auto is_ready = [&](const Batch& batch) { return forced || batch.max_end_ns <= now; };
    if (std::none_of(s.closed.begin(), s.closed.end(), is_ready)) return;
    s.under_way.insert(s.deliveries + 1);  // may be refused its memory; nothing has been taken yet then
    round = ++s.deliveries;
    for (auto it = s.closed.begin(); it != s.closed.end();) {
      const auto next = std::next(it);
      if (is_ready(*it)) ready.splice(ready.end(), s.closed, it);
      it = next;
    }
  }
  for (Batch& batch : ready) deliver(std::move(batch));
  const std::lock_guard lock(s.mutex);
  s.under_way.erase(round);
  s.delivery_ended.notify_all();
}

/// Buffers that the worker took just before a flush are handed back when the flush returns. Not from inside a buffer
/// callback: that would wait for itself.
void await_deliveries() {
  if (connected_driver()->thread()->buffer_callback != 0) return;
  State& s = state();
  std::unique_lock lock(s.mutex);
  const std::uint64_t last = s.deliveries;
  s.delivery_ended.wait(lock, [&] { return s.under_way.empty() || *s.under_way.begin() > last; });
}

void* run_worker(void*) {
  pthread_setname_np(pthread_self(), "simcupti-worker");
  State& s = state();
  // A thread's first exception takes memory from ld.so, which ends the process where it gets none.
  try {
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
  }
  std::int64_t next_period = 0;
  for (;;) {
    bool flush = false, forced = false;
    std::uint64_t requests = 0;
    {
      std::unique_lock lock(s.mutex);
      const auto ready = [&] { return s.flush_requests != s.flushes_done; };
      if (s.closed.empty() && s.period_ms == 0) {
        s.wake.wait(lock, [&] { return ready() || !s.closed.empty() || s.period_ms != 0; });
      } else {
        s.wake.wait_for(lock, std::chrono::milliseconds(2), ready);
      }
      flush = ready();
      forced = s.flush_forced;
      requests = s.flush_requests;
      if (s.period_ms != 0 && monotonic_ns() >= next_period) {
        flush = true;
        next_period = monotonic_ns() + static_cast<std::int64_t>(s.period_ms) * 1'000'000;
      }
    }
    if (settings().worker_delay_ms > 0) usleep(static_cast<useconds_t>(settings().worker_delay_ms * 1000));
    try {
      if (flush)
        flush_buffers(forced);
      else
        deliver_closed(false);
    } catch (const std::bad_alloc&) {  // what is closed stays closed until there is memory
      usleep(1000);
    }
    if (!flush) continue;
    const std::lock_guard lock(s.mutex);
    s.flushes_done = std::max(s.flushes_done, requests);
    s.flush_forced = false;
    s.done.notify_all();
  }
  return nullptr;
}

void start_worker() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.worker_running) return;
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, run_worker, nullptr) != 0) return;
  pthread_detach(thread);
  s.worker_running = true;
}

void close_batch(Batch& batch) {
  if (batch.buffer == nullptr) return;
  State& s = state();
  const std::uint32_t client = batch.client;
  {
    const std::lock_guard lock(s.mutex);
    s.closed.push_back(std::move(batch));
  }
  batch = Batch{};
  batch.client = client;
  s.wake.notify_one();
}

/// Below 13.3 the device buffers that kernel nodes of graphs write their times into are never used again.
bool graph_buffers_used_up() {
  const Settings& script = settings();
  if (script.graph_buffers_recycled || cupti_layout().version >= 130300) return false;
  State& s = state();
  const std::uint64_t per_buffer =
      script.graph_buffer_records != 0 ? script.graph_buffer_records : kDeviceBufferBytes / kTimedNodeBytes;
  return s.graph_records.fetch_add(1, std::memory_order_relaxed) >= per_buffer * s.pool_limit.load();
}

/// Asks the client for a buffer. The holder's mutex is held, as CUPTI holds its lock. False: none was given.
bool request_buffer(Batch& batch, std::size_t record) {
  State& s = state();
  BufferCallbacks callbacks;
  {
    const std::lock_guard lock(s.mutex);
    callbacks = s.callbacks[batch.client];
  }
  if (!callbacks.requested) return false;
  ThreadState& thread = *connected_driver()->thread();
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, max_records = 0;
  ++thread.buffer_callback;
  timed(kCostRequested, [&] { callbacks.requested(&buffer, &size, &max_records); });
  --thread.buffer_callback;
  if (buffer == nullptr) {
    if (cupti_layout().version < 27) {
      std::fprintf(stderr, "[simgpu] a NULL activity buffer crashes CUPTI before API version 27\n");
      std::abort();
    }
    return false;
  }
  if (reinterpret_cast<std::uintptr_t>(buffer) % 8 != 0) rule_broken("an activity buffer is not aligned to 8 bytes");
  if (size < record) return false;
  if (await_delivery != nullptr) await_delivery(buffer);
  if (settings().zero_buffers && buffers_are_zeroed()) std::memset(buffer, 0, size);
  const std::uint32_t client = batch.client;
  batch = Batch{};
  batch.client = client;
  batch.buffer = buffer;
  batch.capacity = size;
  batch.max_records = max_records;
  return true;
}

void append_where_memory_is(Pending pending, std::uint32_t client) {
  if (const Loss loss = lose_record != nullptr ? lose_record() : Loss::kNone; loss != Loss::kNone)
    return loss == Loss::kCounted ? drop(pending, client) : set_fate(pending, Fate::kDropped);
  const std::size_t bytes = record_bytes(cupti_layout(), pending.kind);
  Holder& h = holder(client);
  const std::lock_guard lock(h.mutex);
  Batch& batch = h.open;
  if (batch.buffer != nullptr &&
      (batch.used + bytes > batch.capacity || (batch.max_records != 0 && batch.records.size() >= batch.max_records))) {
    close_batch(batch);
  }
  if (batch.buffer == nullptr && !request_buffer(batch, bytes)) {
    drop(pending, client);
    return;
  }
  batch.used += bytes;
  batch.max_end_ns = std::max(batch.max_end_ns, pending.activity.end_ns);
  batch.records.push_back(std::move(pending));
}

/// A record that no memory can be had for is dropped, as one that no buffer can be had for.
void append(Pending pending, std::uint32_t client) {
  try {
    append_where_memory_is(pending, client);
  } catch (const std::bad_alloc&) {
    drop(pending, client);
  }
}

void append_with_unknowns(Pending pending, std::uint32_t client) {
  static std::atomic<std::uint64_t> serial{0};
  const double rate = settings().unknown_kind_rate;
  if (rate > 0 && hit(rate, serial.fetch_add(1, std::memory_order_relaxed), 7)) {
    Pending unknown;
    unknown.kind = kKindUnknown;
    append(unknown, client);
  }
  append(std::move(pending), client);
}

}  // namespace

std::uint64_t cupti_timestamp() {
  if (const std::uint64_t time = client_timestamp != nullptr ? client_timestamp() : 0; time != 0) return time;
  const Driver* driver = connected_driver();
  return static_cast<std::uint64_t>(driver != nullptr ? driver->now_ns() : realtime_ns());
}

const Layout& cupti_layout() {
  static const Layout layout = [] {
    const std::string& scripted = settings().cupti_version;
    const std::uint32_t version = cupti_version_number(scripted.empty() ? kBuiltCuptiVersion : scripted);
    if (version == 0) {
      std::fprintf(stderr, "[simgpu] SIMGPU_CUPTI_VERSION=\"%s\": expected a CUDA version from 11.1 to 13.5\n",
                   scripted.c_str());
      std::abort();
    }
    return layout_of(version);
  }();
  return layout;
}

const Driver* connected_driver() {
  static std::atomic<const Driver*> found{nullptr};
  if (const Driver* driver = found.load(std::memory_order_acquire); driver != nullptr) return driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto* entry = reinterpret_cast<const Driver* (*)()>(dlsym(library, "simgpu_driver"));
  const Driver* driver = entry != nullptr ? entry() : nullptr;
  if (driver == nullptr || driver->version != kInterfaceVersion) return nullptr;
  found.store(driver, std::memory_order_release);
  return driver;
}

void set_buffer_callbacks(std::uint32_t client, const BufferCallbacks& callbacks) {
  State& s = state();
  {
    const std::lock_guard lock(s.mutex);
    s.callbacks[client] = callbacks;
  }
  if (connected_driver() != nullptr) start_worker();
}

void set_per_thread_buffers(bool on) { state().per_thread.store(on); }
void set_device_buffer_limit(std::uint64_t buffers) { state().pool_limit.store(buffers); }
void set_buffers_zeroed(bool on) { state().zeroed.store(on); }
bool buffers_are_zeroed() { return state().zeroed.load(std::memory_order_relaxed); }
bool per_thread_buffers() { return state().per_thread.load(); }

void record_activity(const Activity& activity, std::uint32_t kernel_kind, std::uint32_t client) {
  Pending p;
  p.activity = activity;
  p.kind = kernel_kind;
  if (activity.instrumented) {
    if (activity.kind == ActivityKind::kMemcpy) p.kind = kKindMemcpy;
    if (activity.kind == ActivityKind::kMemset) p.kind = kKindMemset;
    if (activity.kind == ActivityKind::kGraph) p.kind = kKindGraphTrace;
  }
  if (p.kind == kernel_kind && activity.graph_id != 0) p.untimed = graph_buffers_used_up();
  if (client != 0) {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    p.counted = !s.callbacks[client].foreign;
  }
  append_with_unknowns(std::move(p), client);
}

void record_api(const ApiRecord& record) {
  Pending p;
  p.kind = record.domain == ApiDomain::kDriver ? kKindDriver : kKindRuntime;
  p.api = record;
  p.thread = thread_id();
  p.activity.begin_ns = record.begin_ns;
  p.activity.end_ns = record.end_ns;
  append_with_unknowns(std::move(p), 0);
}

void record_external(std::uint32_t kind, std::uint64_t id, std::uint32_t correlation) {
  Pending p;
  p.kind = kKindExternalCorrelation;
  p.external_kind = kind;
  p.external_id = id;
  p.api.correlation = correlation;
  append_with_unknowns(std::move(p), 0);
}

void flush_buffers(bool forced) {
  State& s = state();
  std::vector<std::shared_ptr<Holder>> holders;
  {
    const std::lock_guard lock(s.mutex);
    holders = s.holders;
  }
  std::set<const Holder*> empty;  // and their threads have ended
  for (const auto& h : holders) {
    const bool ended = h->thread_ended.load(std::memory_order_acquire);
    const std::lock_guard lock(h->mutex);
    if (!h->open.records.empty()) {
      const bool complete = h->open.max_end_ns <= connected_driver()->now_ns();
      if (forced || complete || !settings().flush_keeps_open) close_batch(h->open);
    }
    if (ended && h->open.buffer == nullptr) empty.insert(h.get());
  }
  if (!empty.empty()) {
    const std::lock_guard lock(s.mutex);
    std::erase_if(s.holders, [&empty](const auto& h) { return empty.count(h.get()) != 0; });
  }
  deliver_closed(forced);
  await_deliveries();
  if (connected_driver()->truth_flush != nullptr) connected_driver()->truth_flush();
}

void flush_on_worker(bool forced) {
  start_worker();
  State& s = state();
  std::unique_lock lock(s.mutex);
  const std::uint64_t mine = ++s.flush_requests;
  s.flush_forced |= forced;
  s.wake.notify_one();
  s.done.wait(lock, [&] { return s.flushes_done >= mine; });
}

void set_flush_period(std::uint32_t ms) {
  State& s = state();
  {
    const std::lock_guard lock(s.mutex);
    s.period_ms = ms;
  }
  start_worker();
  s.wake.notify_one();
}

std::size_t take_dropped(std::uint32_t client) {
  // Under the lock that is held while the client is asked for a buffer, as in CUPTI: a client that calls this with a
  // lock of its request callback held deadlocks here too.
  const std::lock_guard lock(state().shared[client].mutex);
  return state().dropped[client].exchange(0);
}

}  // namespace mfu::sim
