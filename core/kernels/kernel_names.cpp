#include "core/kernels/kernel_names.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/base/printable.h"

namespace mfu {
namespace {

std::uint64_t hash_name(std::string_view name) noexcept {
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ull;
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  std::uint64_t h = name.size() * kMix;
  std::size_t i = 0;
  for (; i + 8 <= name.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data() + i, 8);
    h = fold(h ^ word, kMix);
  }
  std::uint64_t tail = 0;
  if (i < name.size()) std::memcpy(&tail, name.data() + i, name.size() - i);
  h = fold(h ^ tail, kMix);
  return h | 0x10000;  // never all-zero above the id, so an entry is never mistaken for an empty slot
}

}  // namespace

std::string demangle(const std::string& name) {
  if (name.rfind("_Z", 0) != 0) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && text ? std::string(text.get()) : name;
}

KernelNames::KernelNames(Counters& counters) : counters_(counters) {
  static const std::string kOtherName = "(other)";
  names_[0].store(&kOtherName, std::memory_order_release);
  classes_[0] = 1 + static_cast<std::uint8_t>(KernelClass::kOther);
  dtypes_.fill(kDTypeUnread);
}

KernelNames::~KernelNames() {
  for (std::uint32_t i = 1; i < size(); ++i) delete names_[i].load(std::memory_order_relaxed);
}

KernelNameId KernelNames::intern(const char* name) noexcept {
  const std::string_view text =
      name == nullptr ? std::string_view("(no name)") : std::string_view(name, ::strnlen(name, kMaxLength));
  const std::uint64_t hash = hash_name(text);
  for (std::uint64_t probe = hash >> 16;; ++probe) {
    const std::uint64_t word = index_[probe % index_.size()].load(std::memory_order_acquire);
    if (word == 0) return add(text, hash);
    if ((word & ~0xFFFFull) == (hash & ~0xFFFFull)) return static_cast<KernelNameId>(word & 0xFFFF);
  }
}

KernelNameId KernelNames::add(std::string_view name, std::uint64_t hash) noexcept {
  try {
    const std::lock_guard lock(add_mutex_);
    const std::uint32_t id = size_.load(std::memory_order_relaxed);
    if (id >= kCapacity) {
      counters_.add(Counter::kKernelNamesFull);
      return KernelNameId::kOther;
    }
    for (std::uint64_t probe = hash >> 16;; ++probe) {
      std::atomic<std::uint64_t>& slot = index_[probe % index_.size()];
      const std::uint64_t word = slot.load(std::memory_order_relaxed);
      if (word == 0) {
        const std::string_view kept = name.substr(0, stored_bytes_ > kStoredBytes ? 256 : name.size());
        names_[id].store(new std::string(kept), std::memory_order_release);
        stored_bytes_ += kept.size();
        size_.store(id + 1, std::memory_order_release);
        slot.store((hash & ~0xFFFFull) | id, std::memory_order_release);
        return static_cast<KernelNameId>(id);
      }
      if ((word & ~0xFFFFull) == (hash & ~0xFFFFull)) return static_cast<KernelNameId>(word & 0xFFFF);
    }
  } catch (...) {  // out of memory: the name is lost, the kernel is not
    counters_.add(Counter::kKernelNamesFull);
    return KernelNameId::kOther;
  }
}

KernelClass KernelNames::classify(KernelNameId id) noexcept {
  KernelClass c = KernelClass::kOther;
  try {
    c = classify_kernel(demangle(std::string(raw_name(id))));
  } catch (...) {
    counters_.add(Counter::kFaultsContained);
  }
  classes_[raw(id)] = static_cast<std::uint8_t>(1 + static_cast<std::uint8_t>(c));
  return c;
}

std::optional<DType> KernelNames::matmul_dtype_seen() {
  std::array<DurationNs, kDTypes> by_dtype{};
  for (std::uint32_t i = 1; i < size(); ++i) {
    const auto id = static_cast<KernelNameId>(i);
    if (ran_ns_[i] == 0 || !is_matmul(class_of(id))) continue;
    if (dtypes_[i] == kDTypeUnread) {
      const auto said = matmul_dtype(demangle(std::string(raw_name(id))));
      dtypes_[i] = said ? static_cast<std::uint8_t>(*said) : kNoDType;
    }
    if (dtypes_[i] != kNoDType) by_dtype[dtypes_[i]] += ran_ns_[i];
  }
  return dtype_of_most(by_dtype);
}

std::string_view KernelNames::raw_name(KernelNameId id) const noexcept {
  const std::string* name = raw(id) < kCapacity ? names_[raw(id)].load(std::memory_order_acquire) : nullptr;
  return name != nullptr ? std::string_view(*name) : std::string_view("(unknown)");
}

std::string KernelNames::display(KernelNameId id) const { return printable(demangle(std::string(raw_name(id))), 200); }

}  // namespace mfu
