// Names of kernels as tests want a client to get them: longer, missing, or unreadable after its callback.
#include "tools/simgpu/cupti/test_hooks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

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

}  // namespace

const char* spoil_name(const char* name, std::uint64_t serial) {
  name = lengthened(name);
  if (name == nullptr || hit(settings().null_name_rate, serial, 4)) return nullptr;
  return settings().stale_names ? names.copy(name) : name;
}

void end_delivery() {
  if (settings().stale_names) names.forbid();
}

}  // namespace mfu::sim
