#include "injection/threads/flush_thread.h"

#include "injection/guards/own_thread.h"

namespace mfu {

bool FlushThread::start() {
  return start_own_thread(
      "mfu-flush", [](void* self) { static_cast<FlushThread*>(self)->loop(); }, this);
}

std::uint64_t FlushThread::ask(bool everything) {
  if (idle()) since_.store(monotonic_ns(), std::memory_order_relaxed);
  if (everything) everything_.store(true, std::memory_order_relaxed);
  wake_.notify([this] { wanted_.fetch_add(1, std::memory_order_relaxed); });
  return newest();
}

void FlushThread::watch_for_end() noexcept {
  wake_.notify([this] { watching_.store(true, std::memory_order_relaxed); });
}

void FlushThread::look_for_end() {
  const bool watched = watching_.exchange(false, std::memory_order_relaxed);  // another one may begin meanwhile
  if (session_.look_for_ended_session())
    done_wake_.notify([] {});  // work from now on is measured
  else if (watched && session_.sees_ends())
    watching_.store(true, std::memory_order_relaxed);
}

void FlushThread::loop() {
  constexpr DurationNs kBetweenLooks = kNsPerSecond / 20;
  CuptiSession::set_own_thread();
  std::uint64_t done = 0;
  while (true) {
    const bool watching = watching_.load(std::memory_order_relaxed);
    wake_.wait(watching ? kBetweenLooks : 3600 * kNsPerSecond,
               [&] { return newest() != done || (!watching && watching_.load(std::memory_order_relaxed)); });
    const std::uint64_t wanted = newest();
    if (wanted == done) {
      if (watching) look_for_end();
      continue;
    }
    if (everything_.exchange(false, std::memory_order_relaxed))
      session_.flush_everything();
    else
      session_.flush();
    look_for_end();
    dropped_.fetch_add(session_.take_dropped(), std::memory_order_relaxed);
    done = wanted;
    since_.store(monotonic_ns(), std::memory_order_relaxed);  // the next one, if it was asked for meanwhile
    cpu_s_.store(thread_cpu_s(), std::memory_order_relaxed);
    done_wake_.notify([&] { done_.store(done, std::memory_order_relaxed); });
  }
}

}  // namespace mfu
