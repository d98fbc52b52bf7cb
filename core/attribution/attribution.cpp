#include "core/attribution/attribution.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "core/base/spin_guard.h"
#include "core/base/ticks.h"

namespace mfu {
namespace {

/// A region's instance that found no room in the table: its launches have an owner without a name, which is
/// not the same as none.
constexpr auto kUnrecorded = static_cast<InstanceId>(LaunchOwner::kAmbiguous);

/// Serial numbers compare as distances, so the 32-bit wrap does not matter.
bool newer(std::uint32_t a, std::uint32_t b) noexcept { return static_cast<std::int32_t>(a - b) > 0; }

}  // namespace

ThreadState* Attribution::acquire_thread(std::uint32_t os_thread) noexcept {
  if (threads_.size() == 0) return nullptr;
  const std::uint32_t serial = next_serial_.fetch_add(1, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < kMaxThreads; ++i) {
    ThreadState& t = threads_[i];
    std::uint32_t free = 0;
    if (t.serial.load(std::memory_order_relaxed) != 0) continue;
    if (!t.serial.compare_exchange_strong(free, serial, std::memory_order_acq_rel)) continue;
    std::uint32_t used = threads_used_.load(std::memory_order_relaxed);
    while (used <= i && !threads_used_.compare_exchange_weak(used, i + 1, std::memory_order_acq_rel)) {
    }
    t.index = i + 1;
    t.stack.clear();
    t.innermost.store(0, std::memory_order_relaxed);
    t.context.store(0, std::memory_order_relaxed);
    t.os_thread.store(os_thread, std::memory_order_relaxed);
    t.handle.store(static_cast<std::uint64_t>(::pthread_self()), std::memory_order_relaxed);
    t.waits_in.store(nullptr, std::memory_order_relaxed);
    t.slow_call.store(nullptr, std::memory_order_relaxed);
    t.range.store(0, std::memory_order_relaxed);
    t.in_launch_call = false;
    t.product = t.launch_product = {};
    return &t;
  }
  counters_.add(Counter::kThreadsAnonymous);
  return nullptr;
}

void Attribution::release_thread(ThreadState& thread, Ticks now) noexcept {
  for (std::uint32_t i = thread.stack.stored_depth(); i-- > 0;) {
    const InstanceId instance = thread.stack.frame(i).instance;
    if (instance != InstanceId::kNone) instances_.close(instance, now, thread.context.load(std::memory_order_relaxed));
  }
  thread.stack.clear();
  publish(thread, InstanceId::kNone);
  thread.serial.store(0, std::memory_order_release);
}

int Attribution::push_region(ThreadState& thread, DomainId domain, RegionId region, RuleId rule,
                             const ShapeWords* shape, Ticks now) noexcept {
  thread.range.store(0, std::memory_order_relaxed);
  RangeStack::Frame frame;
  frame.domain = domain;
  frame.region = region;
  frame.innermost = thread.stack.innermost();
  if (thread.stack.depth() >= RangeStack::kMaxDepth) [[unlikely]] {
    thread.stack.push(frame);
    counters_.add(Counter::kNvtxTooDeep);
    return static_cast<int>(thread.stack.depth()) - 1;
  }
  const InstanceId outer = thread.stack.open_instance_of(region);
  InstanceId id = InstanceId::kNone;
  InstanceSlot* slot = outer == kUnrecorded ? nullptr : instances_.claim(thread.share, id);
  if (slot != nullptr) [[likely]] {
    slot->opener = static_cast<ThreadSerial>(thread.serial.load(std::memory_order_relaxed));
    slot->os_thread = thread.os_thread.load(std::memory_order_relaxed);
    slot->region = region;
    slot->rule = rule;
    slot->open_ticks = now;
    if (outer != InstanceId::kNone) {
      slot->kind = InstanceKind::kNested;
      slot->parent = outer;
    } else {
      slot->kind = InstanceKind::kThread;
      slot->parent = frame.innermost != InstanceId::kNone ? frame.innermost : parent_elsewhere(thread);
      frame.innermost = id;
    }
    slot->shape.given = 0;
    if (shape != nullptr) slot->shape.take(*shape);
    InstanceTable::publish(*slot);
    frame.instance = id;
  } else if (outer == InstanceId::kNone) {
    frame.innermost = frame.instance = kUnrecorded;
  }
  thread.stack.push(frame);
  publish(thread, frame.innermost);
  return static_cast<int>(thread.stack.depth()) - 1;
}

void Attribution::add_owner(ThreadState& thread) noexcept {
  thread.owns = true;  // and so do the threads that have the state later
  const std::uint32_t place = owners_used_.fetch_add(1, std::memory_order_acq_rel);
  owners_[place].store(&thread, std::memory_order_release);
}

LaunchOwner Attribution::ambient_owner(std::uint32_t context) const noexcept {
  const auto leaf_of = [this](std::uint32_t index) -> std::uint32_t {
    return index == 0 ? 0 : threads_[index - 1].innermost.load(std::memory_order_acquire);
  };
  std::uint32_t found = 0, open = 0;
  const std::uint32_t used = owners_used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used && open < 2; ++i) {
    const ThreadState* const owner = owners_[i].load(std::memory_order_acquire);
    const std::uint32_t innermost = owner != nullptr ? owner->innermost.load(std::memory_order_acquire) : 0;
    if (innermost == 0) continue;
    found = innermost;
    ++open;
  }
  if (open == 1) return static_cast<LaunchOwner>(found);
  const std::uint32_t process = process_innermost_.load(std::memory_order_acquire);
  if (open == 0) return process != 0 ? static_cast<LaunchOwner>(process) : LaunchOwner::kOutside;
  if (const std::uint32_t innermost = leaf_of(last_owner_[context & (kContexts - 1)].load(std::memory_order_acquire));
      innermost != 0)
    return static_cast<LaunchOwner>(innermost);
  // The thread that launched there last has closed its region: of the others, the one that launched there last.
  if (const std::uint32_t innermost = leaf_of(find_last_owner(context)); innermost != 0)
    return static_cast<LaunchOwner>(innermost);
  return process != 0 ? static_cast<LaunchOwner>(process) : LaunchOwner::kAmbiguous;
}

/// The parent of a thread's outermost region: the owner that a kernel launched there at this moment would have.
InstanceId Attribution::parent_elsewhere(const ThreadState& thread) const noexcept {
  const bool alone = owners_used_.load(std::memory_order_acquire) <= (thread.owns ? 1u : 0u);
  if (alone && process_innermost_.load(std::memory_order_acquire) == 0) return InstanceId::kNone;
  const LaunchOwner owner = ambient_owner(thread.context.load(std::memory_order_relaxed));
  const bool known = owner != LaunchOwner::kOutside && owner != LaunchOwner::kAmbiguous;
  return known ? static_cast<InstanceId>(owner) : InstanceId::kNone;
}

/// Among the threads with a region open, 1 + index of the one whose last launch was on `context` and is the newest; 0
/// when there is none. A search, but of a rare moment: several owners, and the last of them to launch is done.
std::uint32_t Attribution::find_last_owner(std::uint32_t context) const noexcept {
  std::uint32_t found = 0, newest = 0;
  for (const ThreadState& t : states()) {
    if (t.innermost.load(std::memory_order_acquire) == 0 || context == 0 ||
        t.context.load(std::memory_order_relaxed) != context)
      continue;
    const std::uint32_t last = t.last_correlation.load(std::memory_order_relaxed);
    if (found != 0 && !newer(last, newest)) continue;
    found = static_cast<std::uint32_t>(&t - threads_.data()) + 1;
    newest = last;
  }
  return found;
}

std::uint64_t Attribution::start_process_region(ThreadState* thread, const RegionOpening& opening, Ticks now) noexcept {
  const SpinGuard guard(process_lock_);
  for (std::uint32_t i = 0; guard && i < kMaxProcessRanges; ++i) {
    ProcessRange& range = process_ranges_[i];
    const std::uint32_t generation = range.generation.load(std::memory_order_relaxed);
    if ((generation & 1u) != 0) continue;
    InstanceId id = InstanceId::kNone;
    InstanceSlot* slot = instances_.claim(process_share_, id);
    if (slot == nullptr) return 0;
    slot->opener = static_cast<ThreadSerial>(thread ? thread->serial.load(std::memory_order_relaxed) : 0);
    slot->region = opening.region;
    slot->rule = opening.rule;
    slot->shape.take(opening.shape);
    slot->open_ticks = now;
    slot->kind = InstanceKind::kProcess;
    slot->parent = static_cast<InstanceId>(process_innermost_.load(std::memory_order_relaxed));
    if (thread != nullptr) {
      if (const InstanceId own = thread->stack.innermost(); own != InstanceId::kNone) slot->parent = own;
      slot->context.store(thread->context.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    InstanceTable::publish(*slot);
    range.instance.store(raw(id), std::memory_order_relaxed);
    range.opener = thread ? thread->context.load(std::memory_order_relaxed) : 0;
    range.order = process_order_.fetch_add(1, std::memory_order_relaxed);
    range.generation.store(generation + 1, std::memory_order_release);
    process_open_.fetch_add(1, std::memory_order_relaxed);
    process_innermost_.store(raw(id), std::memory_order_release);
    return (static_cast<std::uint64_t>(generation + 1) << 32) | (i + 1);
  }
  counters_.add(Counter::kNvtxRangesFull);
  return 0;
}

bool Attribution::end_process_region(std::uint64_t handle, Ticks now) noexcept {
  const auto index = static_cast<std::uint32_t>(handle) - 1;
  if (index >= kMaxProcessRanges) return false;
  const SpinGuard guard(process_lock_);
  if (!guard) return false;
  ProcessRange& range = process_ranges_[index];
  const std::uint32_t generation = range.generation.load(std::memory_order_relaxed);
  if (generation != static_cast<std::uint32_t>(handle >> 32) || (generation & 1u) == 0) return false;
  instances_.close(static_cast<InstanceId>(range.instance.load(std::memory_order_relaxed)), now, range.opener);
  range.generation.store(generation + 1, std::memory_order_release);
  process_open_.fetch_sub(1, std::memory_order_relaxed);
  pick_process_innermost();
  return true;
}

void Attribution::pick_process_innermost() noexcept {
  std::uint32_t innermost = 0;
  std::uint32_t order = 0;
  if (process_open_.load(std::memory_order_relaxed) != 0) {
    for (const ProcessRange& range : process_ranges_) {
      if ((range.generation.load(std::memory_order_relaxed) & 1u) == 0) continue;
      if (innermost != 0 && !newer(range.order, order)) continue;
      innermost = range.instance.load(std::memory_order_relaxed);
      order = range.order;
    }
  }
  process_innermost_.store(innermost, std::memory_order_release);
}

void Attribution::launch_anonymous(CorrelationId id, std::uint32_t context) noexcept {
  if (!map_.insert(id, ambient_owner(context))) return;
  anonymous_launches_.fetch_add(1, std::memory_order_relaxed);
  anonymous_correlation_.store(raw(id), std::memory_order_relaxed);
}

void Attribution::retract(ThreadState& thread, Counter why) noexcept {
  if (!map_.retract(static_cast<CorrelationId>(thread.last_correlation.load(std::memory_order_relaxed)))) return;
  thread.launches.store(thread.launches.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  counters_.add(why);
}

std::uint64_t Attribution::launches_seen() const noexcept {
  std::uint64_t sum = anonymous_launches_.load(std::memory_order_relaxed);
  for (const ThreadState& t : states()) sum += t.launches.load(std::memory_order_relaxed);
  return sum;
}

const ThreadState* Attribution::last_launcher() const noexcept {
  const ThreadState* last = nullptr;
  std::uint32_t newest = 0;
  for (const ThreadState& t : states()) {
    if (t.serial.load(std::memory_order_acquire) == 0 || t.any_launch.load(std::memory_order_relaxed) == 0) continue;
    const std::uint32_t launch = t.last_correlation.load(std::memory_order_relaxed);
    if (last != nullptr && !newer(launch, newest)) continue;
    last = &t;
    newest = launch;
  }
  return last;
}

std::vector<std::pair<CorrelationId, const char*>> Attribution::kernels_since(CorrelationId first) const {
  std::vector<std::pair<CorrelationId, const char*>> launches;
  for (const ThreadState& t : states()) {
    if (t.any_launch.load(std::memory_order_relaxed) == 0) continue;
    for (const ThreadState::NamedLaunch& launch : t.named) {
      const std::uint32_t id = launch.correlation.load(std::memory_order_acquire);
      const char* const kernel = launch.kernel.load(std::memory_order_relaxed);
      if (kernel != nullptr && !newer(raw(first), id)) launches.emplace_back(static_cast<CorrelationId>(id), kernel);
    }
  }
  std::ranges::sort(launches, [](const auto& a, const auto& b) { return newer(b.first, a.first); });
  return launches;
}

bool Attribution::newest_correlation(CorrelationId& id) const noexcept {
  bool any = anonymous_launches_.load(std::memory_order_relaxed) != 0;
  std::uint32_t newest = anonymous_correlation_.load(std::memory_order_relaxed);
  for (const ThreadState& t : states()) {
    if (t.any_launch.load(std::memory_order_relaxed) == 0) continue;
    const std::uint32_t last = t.last_correlation.load(std::memory_order_relaxed);
    if (!any || newer(last, newest)) newest = last;
    any = true;
  }
  id = static_cast<CorrelationId>(newest);
  return any;
}

std::uint32_t Attribution::ids_since_first(CorrelationId newest) const noexcept {
  if (anonymous_launches_.load(std::memory_order_relaxed) != 0) return CorrelationMap::kCapacity - 1;
  constexpr std::uint32_t kJustBegun = 1u << 12;  // a thread that is inside its first launch does not say so yet
  std::uint32_t most = 0;
  for (const ThreadState& t : states()) {
    if (t.any_launch.load(std::memory_order_acquire) == 0) continue;  // pairs with launch
    const std::uint32_t first = t.first_correlation.load(std::memory_order_relaxed);
    if (!newer(first, raw(newest)) && raw(newest) - first > most) most = raw(newest) - first;
  }
  return most < CorrelationMap::kCapacity - kJustBegun ? most + kJustBegun : CorrelationMap::kCapacity - 1;
}

}  // namespace mfu
