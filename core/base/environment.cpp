#include "core/base/environment.h"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
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
  if (!read()) return false;
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

bool EnvironmentCopy::read() {
  constexpr std::size_t kAtOnce = 4096;  // one system call: a host that sets variables leaves little time between two
  std::size_t done = 0;
  for (bool ended = source_ == nullptr; !ended;) {
    if (entries_.size() < done + kAtOnce) entries_.resize(done + kAtOnce);
    const char** const part = entries_.data() + done;
    const std::optional<std::size_t> count = read_entries(source_ + done, part, kAtOnce);
    if (!count) return false;
    const char** const end = std::find(part, part + *count, nullptr);
    ended = end != part + *count;
    done += static_cast<std::size_t>(end - part);
  }
  entries_.resize(done);
  entries_.push_back(nullptr);
  return true;
}

bool EnvironmentCopy::is_current() const {
  if (now(environ) != source_) return false;
  const std::size_t all = source_ == nullptr ? 0 : entries_.size();
  const auto again = std::make_unique_for_overwrite<const char*[]>(all);
  for (std::size_t done = 0; done < all;) {
    const std::optional<std::size_t> count = read_entries(source_ + done, &again[done], all - done);
    if (!count) return false;
    done += *count;
  }
  return now(environ) == source_ && std::equal(again.get(), again.get() + all, entries_.begin());
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
