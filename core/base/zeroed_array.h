// Fixed arrays of zero bytes straight from the kernel: pages cost memory only once touched.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <type_traits>

namespace mfu {

namespace detail {
inline constinit std::atomic<bool> g_array_refused{false};
/// Pages of zeroes that take no memory until they are touched, also where the host locks all that it maps from now on;
/// nullptr: there is no room.
[[nodiscard]] void* map_zeroed(std::size_t bytes) noexcept;
}  // namespace detail

/// The system had no memory for some array. [any thread] Ask before the first callback that would write to one.
[[nodiscard]] inline bool array_was_refused() noexcept {
  return detail::g_array_refused.load(std::memory_order_relaxed);
}

/// `size` elements whose all-zero bytes are a valid value. The owner must not destroy it while callbacks that read it
/// may still run, as they may until the process ends: a leaked mapping is cheaper than a crash. If there is no memory,
/// data() is nullptr, size() is 0, and array_was_refused() says so.
template <typename T>
class ZeroedArray {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  explicit ZeroedArray(std::size_t size) noexcept {
    void* p = detail::map_zeroed(size * sizeof(T));
    if (p == nullptr) {
      detail::g_array_refused.store(true, std::memory_order_relaxed);
      return;
    }
    data_ = static_cast<T*>(p);
    size_ = size;
  }
  ZeroedArray(const ZeroedArray&) = delete;
  ZeroedArray& operator=(const ZeroedArray&) = delete;
  ~ZeroedArray() {
    if (data_ != nullptr) ::munmap(data_, size_ * sizeof(T));
  }

  [[nodiscard]] T& operator[](std::size_t i) noexcept {
    check(i);
    return data_[i];
  }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept {
    check(i);
    return data_[i];
  }
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  /// Bytes that are mapped.
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  /// Bytes that are in memory at this moment; an upper bound where the kernel does not say.
  [[nodiscard]] std::size_t resident_bytes() const noexcept {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));  // 4 KiB; 64 KiB on many Arm servers
    // One for each of the smallest pages there are: qemu asks its host, which answers for its own pages.
    constexpr std::size_t kAtOnce = 4u << 20, kSmallestPage = 4096;
    unsigned char there[kAtOnce / kSmallestPage];
    const std::size_t bytes = size_ * sizeof(T);
    std::size_t resident = 0;
    for (std::size_t at = 0; at < bytes; at += kAtOnce) {
      const std::size_t part = bytes - at < kAtOnce ? bytes - at : kAtOnce;
      if (::mincore(reinterpret_cast<char*>(data_) + at, part, there) != 0) return bytes;
      for (std::size_t i = 0; i < (part + page - 1) / page; ++i) resident += (there[i] & 1u) != 0 ? page : 0;
    }
    return resident;
  }

 private:
  /// Fuzzers and sanitizers find what is read beside it, as in a std::vector.
  void check([[maybe_unused]] std::size_t i) const noexcept {
#ifdef _GLIBCXX_ASSERTIONS
    if (i >= size_) __builtin_trap();
#endif
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The same for an object that may refuse to be made: std::bad_alloc if there is no memory.
template <typename T>
class LargeZeroedTable : public ZeroedArray<T> {
 public:
  explicit LargeZeroedTable(std::size_t size) : ZeroedArray<T>(size) {
    if (this->data() == nullptr) throw std::bad_alloc();
  }
};

}  // namespace mfu
