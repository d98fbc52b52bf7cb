// Preloaded into a Python program: a thread reads the Python stacks of the process as fast as it can, for as long as it
// lives. watch() names threads by what pthread_self() gives, also such as have ended; looks() says how many there were.
#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "core/idle/host_work.h"
#include "injection/stacks/python_stacks.h"

namespace {

constexpr std::size_t kWatched = 64;
std::atomic<std::uint64_t> g_watched[kWatched];
std::atomic<std::uint64_t> g_next{0}, g_looks{0}, g_frames{0};

void* look(void*) {
  mfu::PythonStacks stacks;
  mfu::PythonStacks::Stack stack;
  if (!stacks.open()) return nullptr;
  for (std::size_t i = 0;; ++i) {
    // Without a rest even while there is no interpreter, or none any more.
    if (!stacks.find() || !stacks.read(g_watched[i % kWatched].load(std::memory_order_relaxed), stack)) continue;
    g_looks.fetch_add(1, std::memory_order_relaxed);
    const auto frames = stacks.frames(stack);  // each time: nothing is remembered
    g_frames.fetch_add(frames.size(), std::memory_order_relaxed);
    (void)mfu::work_of(frames, stack.collecting);
  }
}

[[gnu::constructor]] void start() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, look, nullptr) == 0) pthread_detach(thread);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void watch(std::uint64_t thread) {
  g_watched[g_next.fetch_add(1, std::memory_order_relaxed) % kWatched].store(thread, std::memory_order_relaxed);
}
extern "C" [[gnu::visibility("default")]] std::uint64_t looks() { return g_looks.load(std::memory_order_relaxed); }
extern "C" [[gnu::visibility("default")]] std::uint64_t frames() { return g_frames.load(std::memory_order_relaxed); }
