#include "cuda/blas/loaded_module.h"

#include <unistd.h>

#include <array>
#include <type_traits>

#include "core/base/bit_mix.h"

namespace mfu {

void LoadedModule::read_segments() noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (int i = 0; i < info_->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info_->dlpi_phdr[i];
    const std::uintptr_t at = base_ + header.p_vaddr;
    if (header.p_type == PT_LOAD) {
      if (at < begin_) begin_ = at;
      if (at + header.p_memsz > end_) end_ = at + header.p_memsz;
    } else if (header.p_type == PT_DYNAMIC) {
      dynamic_ = reinterpret_cast<const ElfW(Dyn)*>(at);
    } else if (header.p_type == PT_GNU_RELRO) {
      // The range that ld.so protects: whole pages, those that it ends in left away.
      relro_begin_ = at & ~(page - 1);
      relro_end_ = (at + header.p_memsz) & ~(page - 1);
    }
  }
}

LoadedModule::LoadedModule(const ::dl_phdr_info& info) noexcept : info_(&info), base_(info.dlpi_addr) {
  read_segments();
  if (dynamic_ == nullptr || dynamic_->d_tag == DT_NULL) return;
  std::array<std::uint64_t, DT_JMPREL + 1> of{};  // by tag
  std::uint64_t key = base_, gnu_hash = 0, relative = 0;
  for (const ElfW(Dyn)* d = dynamic_; d->d_tag != DT_NULL; ++d) {
    key = mix(key + static_cast<std::uint64_t>(d->d_tag)) + d->d_un.d_val;
    if (d->d_tag > 0 && d->d_tag <= DT_JMPREL) of[static_cast<std::size_t>(d->d_tag)] = d->d_un.d_val;
    if (d->d_tag == DT_GNU_HASH) gnu_hash = d->d_un.d_ptr;
    if (d->d_tag == DT_RELACOUNT) relative = d->d_un.d_val;
  }
  // glibc adds the base to these addresses when it loads an object; the vDSO, and other loaders, have them as in the
  // file. 0: there is none.
  const auto point = [this](auto*& to, std::uint64_t value) {
    if (value != 0)
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(value >= base_ ? value : value + base_);
  };
  point(symbols_, of[DT_SYMTAB]);
  point(strings_, of[DT_STRTAB]);
  point(gnu_hash_, gnu_hash);
  point(hash_, of[DT_HASH]);
  point(plt_.first, of[DT_JMPREL]);
  point(data_.first, of[DT_RELA]);
  string_bytes_ = of[DT_STRSZ];
  const bool rela = of[DT_PLTREL] == DT_RELA || of[DT_PLTREL] == 0;
  if (plt_.first != nullptr && rela) plt_.count = of[DT_PLTRELSZ] / sizeof(ElfW(Rela));
  if (data_.first != nullptr) {
    data_.count = of[DT_RELASZ] / sizeof(ElfW(Rela));
    // The relative ones come first, and are most of them.
    relative = std::min<std::uint64_t>(relative, data_.count);
    data_.first += relative;
    data_.count -= relative;
  }
  if (const std::uint64_t soname = of[DT_SONAME]; strings_ != nullptr && soname != 0 && soname < string_bytes_) {
    name_ = strings_ + soname;
  } else if (info.dlpi_name != nullptr) {
    name_ = info.dlpi_name;
    name_.remove_prefix(name_.rfind('/') + 1);
  }
  key_ = mix(key);
}

bool LoadedModule::needs(std::string_view library) const noexcept {
  if (dynamic_ == nullptr || strings_ == nullptr) return false;
  for (const ElfW(Dyn)* d = dynamic_; d->d_tag != DT_NULL; ++d)
    if (d->d_tag == DT_NEEDED && d->d_un.d_val < string_bytes_ && library == strings_ + d->d_un.d_val) return true;
  return false;
}

bool LoadedModule::writable(std::uintptr_t slot) const noexcept {
  for (int i = 0; i < info_->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info_->dlpi_phdr[i];
    const std::uintptr_t at = base_ + header.p_vaddr;
    if (header.p_type == PT_LOAD && slot >= at && slot + sizeof(void*) <= at + header.p_memsz)
      return (header.p_flags & PF_W) != 0;
  }
  return false;
}

std::string_view LoadedModule::symbol_name(std::uint32_t symbol) const noexcept {
  const std::size_t at = symbols_[symbol].st_name;
  return at < string_bytes_ ? std::string_view(strings_ + at) : std::string_view();
}

const char* LoadedModule::import_name(std::uint32_t symbol) const noexcept {
  const ElfW(Sym)& s = symbols_[symbol];
  return s.st_shndx == SHN_UNDEF && s.st_name != 0 && s.st_name < string_bytes_ ? strings_ + s.st_name : nullptr;
}

/// Symbols before this one may be undefined; kUnknown where no table says.
std::uint32_t LoadedModule::undefined_symbols() const noexcept {
  if (gnu_hash_ != nullptr) {
    // Its symbols come last in the table, and it has none that is undefined: but in a program at a fixed address
    // functions of others whose address is taken, since it gives a separate slot for that. One without any symbol
    // says nothing.
    if (base_ == 0) return kUnknown;
    const std::uint32_t buckets = gnu_hash_[0], bloom_words = gnu_hash_[2];
    const std::uint32_t* bucket = gnu_hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    for (std::uint32_t i = 0; i < buckets; ++i)
      if (bucket[i] != 0) return gnu_hash_[1];
  }
  return hash_ != nullptr ? hash_[1] : kUnknown;
}

void* LoadedModule::address_of(const ElfW(Sym) & symbol) const noexcept {
  if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) return nullptr;
  return reinterpret_cast<void*>(base_ + symbol.st_value);
}

// The hash table of DT_GNU_HASH: number of buckets, first symbol in it, number of words of the Bloom filter, its shift;
// the filter; per bucket its first symbol; per symbol its hash, the lowest bit set on the last of a bucket.
void* LoadedModule::find(const char* name) const noexcept {
  if (!usable()) return nullptr;
  if (gnu_hash_ != nullptr) {
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    const std::uint32_t buckets = gnu_hash_[0], first = gnu_hash_[1], bloom_words = gnu_hash_[2];
    if (buckets == 0) return nullptr;
    const std::uint32_t* bucket = gnu_hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t* hashes = bucket + buckets;
    std::uint32_t symbol = bucket[hash % buckets];
    if (symbol < first) return nullptr;
    for (;; ++symbol) {
      const std::uint32_t other = hashes[symbol - first];
      if ((other | 1u) == (hash | 1u) && symbol_name(symbol) == name) return address_of(symbols_[symbol]);
      if ((other & 1u) != 0) return nullptr;
    }
  }
  if (hash_ != nullptr)
    for (std::uint32_t i = 1; i < hash_[1]; ++i)
      if (symbols_[i].st_shndx != SHN_UNDEF && symbol_name(i) == name) return address_of(symbols_[i]);
  return nullptr;
}

}  // namespace mfu
