// A shared object of this process, as its dynamic section describes it.
#pragma once

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mfu {

/// Reads what the dynamic linker has mapped: no file, no allocation, no call into the linker. Good only while
/// dl_iterate_phdr holds the linker's lock, since the object may be unmapped afterwards.
class LoadedModule {
 public:
  explicit LoadedModule(const ::dl_phdr_info& info) noexcept;

  /// False for an object without a dynamic section, or one that lacks what is read here.
  [[nodiscard]] bool usable() const noexcept { return symbols_ != nullptr && strings_ != nullptr; }
  /// Distinguishes objects: where it lies, and what its dynamic section holds.
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }
  /// DT_SONAME, or the last part of its file name.
  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] std::uintptr_t begin() const noexcept { return begin_; }
  [[nodiscard]] std::uintptr_t end() const noexcept { return end_; }
  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept { return address >= begin_ && address < end_; }
  /// Whether it names `library` as one that it needs.
  [[nodiscard]] bool needs(std::string_view library) const noexcept;
  /// A function that it defines; nullptr when it has none of that name, or one that is chosen at run time.
  [[nodiscard]] void* find(const char* name) const noexcept;

  /// Calls `import(name, slot)` for every function of another object whose address it keeps in a slot, of
  /// those with `wanted(name)`; the name ends with a zero.
  template <typename Wanted, typename Import>
  void each_import(Wanted&& wanted, Import&& import) const;

  /// The slot lies in what the linker makes read-only once it has filled it in (RELRO).
  [[nodiscard]] bool read_only_later(std::uintptr_t slot) const noexcept {
    return slot >= relro_begin_ && slot < relro_end_;
  }
  /// The slot lies in a segment that may be written to otherwise.
  [[nodiscard]] bool writable(std::uintptr_t slot) const noexcept;

 private:
  static constexpr std::uint32_t kMostImports = 512;  ///< symbols of one object that a prefix may name
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

#if defined(__x86_64__)
  static constexpr std::uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobalData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
  static constexpr std::uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobalData = R_AARCH64_GLOB_DAT;
#endif

  struct Relocations {
    const ElfW(Rela) * first = nullptr;
    std::size_t count = 0;
  };

  void read_segments() noexcept;
  [[nodiscard]] std::string_view symbol_name(std::uint32_t symbol) const noexcept;
  /// nullptr for a symbol that it defines itself.
  [[nodiscard]] const char* import_name(std::uint32_t symbol) const noexcept;
  [[nodiscard]] std::uint32_t undefined_symbols() const noexcept;
  [[nodiscard]] void* address_of(const ElfW(Sym) & symbol) const noexcept;

  const ::dl_phdr_info* info_;
  std::uintptr_t base_;
  std::uintptr_t begin_ = UINTPTR_MAX, end_ = 0;
  std::uintptr_t relro_begin_ = 0, relro_end_ = 0;
  const ElfW(Dyn) * dynamic_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  std::size_t string_bytes_ = 0;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* hash_ = nullptr;  ///< DT_HASH
  Relocations plt_, data_;
  std::string_view name_;
  std::uint64_t key_ = 0;
};

template <typename Wanted, typename Import>
void LoadedModule::each_import(Wanted&& wanted, Import&& import) const {
  // A few of thousands of symbols are asked for: first which ones, then where their slots are.
  std::uint32_t symbols[kMostImports];
  const auto is_wanted = [&](std::uint32_t symbol) {
    const char* name = import_name(symbol);
    return name != nullptr && wanted(name);
  };
  std::uint32_t count = 0;
  const std::uint32_t undefined = undefined_symbols();
  const bool all = undefined == kUnknown;  // nothing says where they end: every relocation's name is looked at
  for (std::uint32_t i = 1; !all && i < undefined; ++i) {
    if (!is_wanted(i)) continue;
    if (count == kMostImports) return;
    symbols[count++] = i;
  }
  if (!all && count == 0) return;
  const auto take = [&](const Relocations& relocations, std::uint32_t type) {
    for (std::size_t i = 0; i < relocations.count; ++i) {
      const ElfW(Rela)& r = relocations.first[i];
      if (ELF64_R_TYPE(r.r_info) != type) continue;
      const auto symbol = static_cast<std::uint32_t>(ELF64_R_SYM(r.r_info));
      // They are in the order of the symbol table.
      if (all ? is_wanted(symbol) : std::binary_search(symbols, symbols + count, symbol))
        import(import_name(symbol), base_ + r.r_offset);
    }
  };
  take(plt_, kJumpSlot);
  take(data_, kGlobalData);  // where the compiler made no PLT: -fno-plt, or an address that is taken
}

}  // namespace mfu
