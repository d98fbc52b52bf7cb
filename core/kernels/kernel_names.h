// Kernel names, each stored once: raw name > small dense id. Filled where records are decoded, read by the drain.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/base/counters.h"
#include "core/base/ids.h"
#include "core/base/units.h"
#include "core/base/zeroed_array.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {

/// At most kCapacity names; further ones become KernelNameId::kOther and are counted.
class KernelNames {
 public:
  static constexpr std::uint32_t kCapacity = 4096;
  static constexpr std::size_t kMaxLength = 8192;        ///< bytes of a name that are compared
  static constexpr std::size_t kStoredBytes = 4u << 20;  ///< all names together; beyond it a name keeps 256 bytes

  explicit KernelNames(Counters& counters);
  ~KernelNames();
  KernelNames(const KernelNames&) = delete;
  KernelNames& operator=(const KernelNames&) = delete;

  /// [decoding threads] Id of `name`, which may be nullptr and is copied. No lock once the name is known.
  [[nodiscard]] KernelNameId intern(const char* name) noexcept;

  /// [mfu-drain] Class of a kernel; demangles and classifies at first sight.
  [[nodiscard]] KernelClass class_of(KernelNameId id) noexcept {
    const std::uint8_t known = classes_[raw(id)];
    return known != 0 ? static_cast<KernelClass>(known - 1) : classify(id);
  }
  /// [mfu-drain] Notes that a kernel of this name ran for so long.
  void ran(KernelNameId id, DurationNs elapsed) noexcept { ran_ns_[raw(id)] += elapsed; }
  /// [mfu-drain] dtype of most FLOP of matmul kernels so far, of those whose names say one.
  [[nodiscard]] std::optional<DType> matmul_dtype_seen();
  /// [mfu-drain] For people: demangled, at most 200 bytes, valid UTF-8.
  [[nodiscard]] std::string display(KernelNameId id) const;
  /// [mfu-drain] As the source gave it, as far as it was kept.
  [[nodiscard]] std::string_view raw_name(KernelNameId id) const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

 private:
  [[gnu::noinline]] KernelNameId add(std::string_view name, std::uint64_t hash) noexcept;
  [[gnu::noinline]] KernelClass classify(KernelNameId id) noexcept;

  Counters& counters_;
  std::array<std::atomic<std::uint64_t>, 2 * kCapacity> index_{};  ///< open addressing: hash (upper 48) | id; 0 empty
  std::array<std::atomic<const std::string*>, kCapacity> names_{};
  std::array<std::uint8_t, kCapacity> classes_{};  ///< 1 + KernelClass; 0: not classified yet. Drain only
  static constexpr std::uint8_t kDTypeUnread = 0xFF, kNoDType = 0xFE;
  std::array<std::uint8_t, kCapacity> dtypes_;  ///< of the operands, by the name: a DType or one of these. Drain only
  std::array<DurationNs, kCapacity> ran_ns_{};  ///< Drain only
  std::atomic<std::uint32_t> size_{1};          ///< id 0 is kOther
  std::size_t stored_bytes_ = 0;
  std::mutex add_mutex_;  ///< first sight of a name only; never taken on a launching thread
};

/// `name` demangled if it is an Itanium-mangled C++ name, else as it is.
[[nodiscard]] std::string demangle(const std::string& name);

/// `text` with every byte that is not part of valid UTF-8 replaced by '?', cut to at most `max_bytes`.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace mfu
