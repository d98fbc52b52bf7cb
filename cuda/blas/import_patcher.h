// Puts the hooks into the import slots of loaded modules: from then on their calls to cuBLAS come through here.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/zeroed_array.h"
#include "cuda/blas/entries.h"
#include "cuda/blas/loaded_module.h"
#include "cuda/blas/read_only_memory.h"

namespace mfu {

/// A module calls a function of another one through a slot in its memory that holds the function's address (PLT/GOT).
/// scan() changes such slots, one aligned store each, while other threads call through them. A slot is never changed
/// back, so the code that it leads to must stay loaded.
///
/// The hook calls the function that the slot held: cuBLAS, or the function of another tool in front of it. A slot that
/// the linker has not filled in (lazy binding) gets the function of the library that its module names as needed.
class ImportPatcher {
 public:
  /// [before any scan] Notes functions that other tools have put in front of the library (LD_PRELOAD).
  ImportPatcher() noexcept;

  /// [one thread at a time] Some microseconds where modules came or went, or slots wait; less than one else.
  void scan_if_changed() noexcept {
    if (changed()) scan();
  }
  /// [one thread at a time] Looks at every module that was not looked at before. Holds the linker's lock meanwhile, so
  /// it takes none of the library's, and allocates nothing.
  void scan() noexcept;

  /// [one thread at a time] Whether a module was seen whose kernels are products by themselves
  /// (cuda/kernel_products.h).
  [[nodiscard]] bool saw_kernel_products() const noexcept { return saw_kernel_products_; }
  /// [any thread] Slots that lead to a hook since this object put it there.
  [[nodiscard]] std::uint32_t patched() const noexcept { return patched_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kMostModules = 4096, kMostLibraries = 16;
  static constexpr std::uint32_t kMostWait = 64;  ///< scans that are left out at most while a slot waits

  struct Library {
    const LoadedModule* module;
    BlasEntry::Library kind;
  };
  struct Range {
    std::uintptr_t begin, end;
  };

  [[nodiscard]] bool changed() noexcept;
  void collect(const ::dl_phdr_info& info) noexcept;
  void patch(const ::dl_phdr_info& info) noexcept;
  void patch_slot(const LoadedModule& module, const BlasEntry& entry, std::uintptr_t slot) noexcept;
  void patch_look_up(const LoadedModule& module, std::uintptr_t slot) noexcept;
  void put(const LoadedModule& module, std::uintptr_t slot, void* hook, bool unbound) noexcept;
  [[nodiscard]] bool open_page(std::uintptr_t page) noexcept;
  void close_page() noexcept;
  [[nodiscard]] void* unbound_target(const LoadedModule& module, const BlasEntry& entry) const noexcept;
  [[nodiscard]] void* helper(const BlasEntry& entry, void* function, const char* name) const noexcept;
  [[nodiscard]] bool in_a_module(std::uintptr_t address) const noexcept;
  [[nodiscard]] bool known_without(std::uint64_t key) const noexcept;
  void note_without(std::uint64_t key) noexcept;

  ZeroedArray<std::uint64_t> without_{kMostModules};  ///< keys of modules that call none of the functions
  std::uint32_t without_count_ = 0;
  ZeroedArray<Range> ranges_{kMostModules};  ///< of the modules, in this scan
  std::uint32_t range_count_ = 0;
  alignas(LoadedModule) unsigned char library_space_[kMostLibraries * sizeof(LoadedModule)];
  Library libraries_[kMostLibraries] = {};
  std::uint32_t library_count_ = 0;
  ZeroedArray<void*> in_front_{256};  ///< by entry: the function of another tool
  unsigned long long adds_ = 0, subs_ = 0;
  bool scanned_ = false;
  bool saw_kernel_products_ = false;
  bool wait_ = false;             ///< a slot could not be filled in yet, or may be filled in over ours
  std::uint32_t wait_scans_ = 0;  ///< calls of changed() to go
  std::uint32_t wait_next_ = 1;
  std::atomic<std::uint32_t> patched_{0};
  ReadOnlyMemory read_only_;
  std::uintptr_t open_page_ = 0;  ///< a read-only page that is writable while slots of it are filled in; 0: none
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace mfu
