// Records as tests want a client to get them: lost, with other times, with names that are longer, missing or unreadable
// after its callback; its buffers; and the clock that a client may put in the place of CUPTI's.
#include "tools/simgpu/cupti/test_hooks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/settings.h"

namespace mfu::sim {
namespace {

struct NameState {
  std::mutex mutex;
  std::unordered_map<const char*, std::string> long_names;
  std::deque<std::pair<void*, std::size_t>> stale_arenas;
};

NameState& name_state() {
  static NameState* const instance = new NameState;  // leaked: threads may still launch while the process exits
  return *instance;
}

/// Memory for the names of one delivery that is made unreadable once the client has had its callback.
class NameArena {
 public:
  const char* copy(const char* name);
  /// From here on no byte of the names that were copied may be read.
  void forbid();

 private:
  void close();

  char* memory_ = nullptr;
  std::size_t size_ = 0, used_ = 0;
  std::vector<std::pair<void*, std::size_t>> blocks_;
};

const char* NameArena::copy(const char* name) {
  const std::size_t bytes = std::strlen(name) + 1;
  if (memory_ == nullptr || used_ + bytes > size_) {
    close();
    size_ = std::max<std::size_t>(64 << 10, (bytes + 4095) / 4096 * 4096);
    memory_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) std::abort();
    used_ = 0;
  }
  char* place = memory_ + used_;
  std::memcpy(place, name, bytes);
  used_ += bytes;
  return place;
}

void NameArena::close() {
  if (memory_ != nullptr) blocks_.emplace_back(memory_, size_);
  memory_ = nullptr;
}

void NameArena::forbid() {
  close();
  NameState& s = name_state();
  const std::lock_guard lock(s.mutex);
  for (const auto& block : blocks_) {
    mprotect(block.first, block.second, PROT_NONE);
    s.stale_arenas.push_back(block);
  }
  blocks_.clear();
  while (s.stale_arenas.size() > 256) {  // still no pointer into them may be used, but address space is finite
    munmap(s.stale_arenas.front().first, s.stale_arenas.front().second);
    s.stale_arenas.pop_front();
  }
}

/// `name`, or a copy of it with as many bytes as the settings ask for. Lives to the end of the process.
const char* lengthened(const char* name) {
  const std::size_t bytes = settings().long_name_bytes;
  if (bytes == 0 || name == nullptr) return name;
  NameState& s = name_state();
  const std::lock_guard lock(s.mutex);
  std::string& text = s.long_names[name];
  if (text.empty()) {
    text = name;
    if (text.size() < bytes) text.append(bytes - text.size(), 'L');
  }
  return text.c_str();
}

thread_local NameArena names;

const char* spoil_name(const char* name, std::uint64_t serial) {
  name = lengthened(name);
  if (name == nullptr || hit(settings().null_name_rate, serial, 4)) return nullptr;
  return settings().stale_names ? names.copy(name) : name;
}

struct Clock {
  std::atomic<CUpti_TimestampCallbackFunc> callback{nullptr};
  std::atomic<bool> ever{false};
  std::atomic<std::int64_t> base_ns{0};
  std::atomic<std::uint64_t> base_ticks{0};
};
constinit Clock g_clock;

/// Converts the simulation's time to that of the client's clock at that moment.
std::int64_t in_client_units(std::int64_t t_ns) {
  const CUpti_TimestampCallbackFunc callback = g_clock.callback.load();
  if (callback == nullptr || t_ns == 0) return t_ns;
  const std::int64_t now = connected_driver()->now_ns();
  const std::uint64_t ticks = callback();
  const std::int64_t base_ns = g_clock.base_ns.load();
  const double rate =
      now > base_ns ? static_cast<double>(ticks - g_clock.base_ticks.load()) / static_cast<double>(now - base_ns) : 1;
  return static_cast<std::int64_t>(ticks) - static_cast<std::int64_t>(static_cast<double>(now - t_ns) * rate);
}

/// Buffers that clients have; kept where they are poisoned after their return.
struct Deliveries {
  std::mutex mutex;
  std::condition_variable changed;
  std::multiset<const std::uint8_t*> buffers;
};
Deliveries& deliveries() {
  static Deliveries* const instance = new Deliveries;  // leaked, as above
  return *instance;
}

}  // namespace

void set_timestamp_callback(CUpti_TimestampCallbackFunc callback) {
  g_clock.callback.store(nullptr);
  if (callback != nullptr) {
    g_clock.ever.store(true);
    g_clock.base_ns.store(connected_driver()->now_ns());
    g_clock.base_ticks.store(callback());
    usleep(2000);  // the rate of its clock is worked out from here on: give it something to divide by
  }
  g_clock.callback.store(callback);
}

std::uint64_t client_timestamp() {
  const CUpti_TimestampCallbackFunc callback = g_clock.callback.load();
  return callback != nullptr ? callback() : 0;
}

void spoil_record(RecordView& record, std::uint64_t serial, Fate& fate) {
  const Settings& script = settings();
  const bool call = record.kind == kKindDriver || record.kind == kKindRuntime;
  if (!call && record.end_ns != 0) {
    if ((script.timestamp_bug && g_clock.ever.load()) || hit(script.zero_rate, serial, 2)) {
      record.begin_ns = record.end_ns = 0;
      fate = Fate::kZeroed;
    } else if (hit(script.negative_rate, serial, 3)) {
      std::swap(record.begin_ns, record.end_ns);
      fate = Fate::kNegative;
    }
  }
  if (record.begin_ns != 0 && record.end_ns != 0) {
    const std::int64_t moved = script.skew_ns - (hit(script.early_rate, serial, 9) ? script.early_ns : 0);
    record.begin_ns += moved;
    record.end_ns += moved;
  }
  record.begin_ns = in_client_units(record.begin_ns);
  record.end_ns = in_client_units(record.end_ns);
  if (record.name != nullptr) record.name = spoil_name(record.name, serial);
}

Loss lose_record() {
  const Settings& script = settings();
  static std::atomic<std::uint64_t> serial{0};
  const std::uint64_t n = serial.fetch_add(1, std::memory_order_relaxed);
  const bool burst = script.drop_every != 0 && n % script.drop_every < script.drop_burst;
  if (burst || hit(script.drop_rate, n, 6)) return Loss::kCounted;
  return hit(script.lose_rate, n, 8) ? Loss::kSilent : Loss::kNone;
}

void begin_delivery(const std::uint8_t* buffer) {
  if (!settings().poison_buffers) return;
  Deliveries& d = deliveries();
  const std::lock_guard lock(d.mutex);
  d.buffers.insert(buffer);
}

void end_delivery(std::uint8_t* buffer, std::size_t bytes) {
  if (settings().stale_names) names.forbid();
  if (!settings().poison_buffers || buffer == nullptr) return;
  std::memset(buffer, 0xDB, bytes);
  Deliveries& d = deliveries();
  const std::lock_guard lock(d.mutex);
  d.buffers.erase(d.buffers.find(buffer));
  d.changed.notify_all();
}

void await_delivery(const std::uint8_t* buffer) {
  if (!settings().poison_buffers) return;
  Deliveries& d = deliveries();
  std::unique_lock lock(d.mutex);
  d.changed.wait(lock, [&] { return !d.buffers.contains(buffer); });
}

}  // namespace mfu::sim
