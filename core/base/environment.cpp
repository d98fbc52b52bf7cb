#include "core/base/environment.h"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include "core/base/ticks.h"

namespace mfu {
namespace {

template <typename T>
T* now(T* const& place) noexcept {
  return __atomic_load_n(&place, __ATOMIC_ACQUIRE);
}

/// Copies up to `count` entries at `from`, fewer where the memory ends; nullopt where nothing can be read there. A
/// sandbox that refuses the system call leaves a plain read, as getenv() does it.
std::optional<std::size_t> read_entries(char** from, const char** to, std::size_t count) noexcept {
  const ::iovec local{to, count * sizeof *to}, remote{from, count * sizeof *from};
  const ::ssize_t bytes = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  if (bytes >= static_cast<::ssize_t>(sizeof *to)) return static_cast<std::size_t>(bytes) / sizeof *to;
  if (bytes >= 0 || errno == EFAULT) return std::nullopt;
  *to = now(*from);
  return 1;
}

}  // namespace

EnvironmentCopy::EnvironmentCopy() {
  // Some 10 us each, and then 0.5 ms: a thread that has lost its processor inside of setenv() gets it back. Only a host
  // that does nothing but set variables ends with the empty environment.
  constexpr int kTries = 1400, kAtOnce = 1000;
  for (int i = 0; i < kTries; ++i) {
    if (copy()) return;
    const ::timespec pause{0, 500'000};
    if (i >= kAtOnce) ::nanosleep(&pause, nullptr);
  }
  entries_.assign(1, nullptr);
}

bool EnvironmentCopy::copy() {
  source_ = now(environ);
  if (!read(&entries_)) return false;
  // setenv() frees the old array a moment before it publishes the new one: a long one where its thread has to wait for
  // a processor. Then both reads see what the allocator has written over the first entries.
  for (int i = 0; i < 100; ++i) spin_pause();
  return is_current() && texts_are_there() && (entries_.size() > 1 || source_ == nullptr);
}

/// Whether each entry is the address of something.
bool EnvironmentCopy::texts_are_there() const {
  std::array<::iovec, 256> texts;
  std::array<char, 256> firsts;
  const std::size_t all = entries_.size() - 1;
  for (std::size_t done = 0, some = 0; done < all; done += some) {
    some = std::min(texts.size(), all - done);
    for (std::size_t i = 0; i < some; ++i) texts[i] = {const_cast<char*>(entries_[done + i]), 1};
    const ::iovec local{firsts.data(), some};
    const ::ssize_t bytes = ::process_vm_readv(::getpid(), &local, 1, texts.data(), some, 0);
    if (bytes < 0 && errno != EFAULT) return true;  // a sandbox refuses the call
    if (bytes != static_cast<::ssize_t>(some)) return false;
  }
  return true;
}

bool EnvironmentCopy::read(std::vector<const char*>* to) const {
  constexpr std::size_t kMost = 1u << 20;
  to->clear();
  std::array<const char*, 256> part;
  while (source_ != nullptr && to->size() < kMost) {
    const std::optional<std::size_t> count = read_entries(source_ + to->size(), part.data(), part.size());
    if (!count) return false;
    const auto end = std::find(part.begin(), part.begin() + *count, nullptr);
    to->insert(to->end(), part.begin(), end);
    if (end != part.begin() + *count) break;
  }
  to->push_back(nullptr);
  return true;
}

bool EnvironmentCopy::is_current() const {
  std::vector<const char*> again;
  return now(environ) == source_ && read(&again) && again == entries_ && now(environ) == source_;
}

const char* EnvironmentCopy::find(const char* name) const noexcept {
  const std::size_t length = std::strlen(name);
  for (const char* entry : entries_)
    if (entry != nullptr && std::strncmp(entry, name, length) == 0 && entry[length] == '=') return entry + length + 1;
  return nullptr;
}

bool EnvironmentCopy::append_to_process(const char* entry) const {
  const std::size_t count = entries_.size() - 1;
  char** longer = new (std::nothrow) char*[count + 2];
  if (longer == nullptr) return true;
  std::memcpy(longer, entries_.data(), count * sizeof *longer);
  longer[count] = const_cast<char*>(entry);
  longer[count + 1] = nullptr;
  char** expected = source_;
  if (is_current() &&
      __atomic_compare_exchange_n(&environ, &expected, longer, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
    return true;
  delete[] longer;
  return false;
}

}  // namespace mfu
