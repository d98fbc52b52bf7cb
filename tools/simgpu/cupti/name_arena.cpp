#include "tools/simgpu/cupti/name_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

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

}  // namespace

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
  while (s.stale_arenas.size() > 256) {  // still no pointer into them may be used, but address space is finite
    munmap(s.stale_arenas.front().first, s.stale_arenas.front().second);
    s.stale_arenas.pop_front();
  }
}

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

}  // namespace mfu::sim
