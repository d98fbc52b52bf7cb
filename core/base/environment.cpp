#include "core/base/environment.h"

#include <unistd.h>

#include <cstring>
#include <new>

#include "core/base/ticks.h"

namespace mfu {
namespace {

template <typename T>
T* now(T* const& place) noexcept {
  return __atomic_load_n(&place, __ATOMIC_ACQUIRE);
}

}  // namespace

EnvironmentCopy::EnvironmentCopy() {
  // A host that sets variables without end: the last copy is taken all the same.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && !copy(); ++i) {
  }
}

bool EnvironmentCopy::copy() {
  constexpr std::size_t kMost = 1u << 20;
  source_ = now(environ);
  entries_.clear();
  for (std::size_t i = 0; source_ != nullptr && i < kMost; ++i) {
    const char* const entry = now(source_[i]);
    if (entry == nullptr) break;
    entries_.push_back(entry);
  }
  entries_.push_back(nullptr);
  if (!is_current()) return false;
  // setenv() frees the old array a moment before it says where the new one is.
  for (int i = 0; i < 100; ++i) spin_pause();
  return is_current();
}

bool EnvironmentCopy::is_current() const noexcept {
  if (now(environ) != source_) return false;
  for (std::size_t i = 0; source_ != nullptr && i < entries_.size(); ++i)
    if (now(source_[i]) != entries_[i]) return false;
  return now(environ) == source_;
}

const char* EnvironmentCopy::find(const char* name) const noexcept {
  const std::size_t length = std::strlen(name);
  for (const char* entry : entries_)
    if (entry != nullptr && std::strncmp(entry, name, length) == 0 && entry[length] == '=') return entry + length + 1;
  return nullptr;
}

bool EnvironmentCopy::append_to_process(const char* entry) const noexcept {
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
