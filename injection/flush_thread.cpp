#include "injection/flush_thread.h"

#include "injection/own_thread.h"

namespace mfu {

bool FlushThread::start() {
  return start_own_thread(
      "mfu-flush", [](void* self) { static_cast<FlushThread*>(self)->loop(); }, this);
}

std::uint64_t FlushThread::ask(bool everything) {
  if (everything) everything_.store(true, std::memory_order_relaxed);
  wake_.notify([this] { wanted_.fetch_add(1, std::memory_order_relaxed); });
  return newest();
}

void FlushThread::loop() {
  CuptiSession::set_own_thread();
  std::uint64_t done = 0;
  while (true) {
    wake_.wait(3600 * kNsPerSecond, [&] { return newest() != done; });
    const std::uint64_t wanted = newest();
    if (wanted == done) continue;
    if (everything_.exchange(false, std::memory_order_relaxed))
      session_.flush_everything();
    else
      session_.flush();
    session_.look_for_ended_session();
    dropped_.fetch_add(session_.take_dropped(), std::memory_order_relaxed);
    done = wanted;
    cpu_s_.store(thread_cpu_s(), std::memory_order_relaxed);
    done_wake_.notify([&] { done_.store(done, std::memory_order_relaxed); });
  }
}

}  // namespace mfu
