#include "cuda/blas/import_patcher.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string_view>

#include "cuda/blas/look_up.h"
#include "cuda/kernel_products.h"

namespace mfu {
namespace {

constexpr std::string_view kCublas = "libcublas.so", kCublasLt = "libcublasLt.so";

/// Modules that are never changed: those that everything else needs, and CUPTI, which may call from anywhere.
bool is_off_limits(std::string_view name) noexcept {
  for (const std::string_view prefix :
       {"libc.so", "ld-linux", "ld.so", "libdl.so", "libpthread.so", "libcupti.so", "linux-vdso", "linux-gate"})
    if (name.starts_with(prefix)) return true;
  return false;
}

std::uintptr_t page_bytes() noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return page;
}

void* load(std::uintptr_t slot) noexcept { return __atomic_load_n(reinterpret_cast<void**>(slot), __ATOMIC_ACQUIRE); }
void store(std::uintptr_t slot, void* value) noexcept {
  __atomic_store_n(reinterpret_cast<void**>(slot), value, __ATOMIC_RELEASE);
}

/// Calls `each` for every module, under one hold of the linker's lock.
template <typename Each>
void each_module(Each each) noexcept {
  ::dl_iterate_phdr(
      [](::dl_phdr_info* info, std::size_t, void* f) {
        (*static_cast<Each*>(f))(*info);
        return 0;
      },
      &each);
}

}  // namespace

ImportPatcher::ImportPatcher() noexcept {
  find_real_dlsym();
  // A tool that is in front of the library for the whole program is found before it in the global scope.
  const std::span<const BlasEntry> entries = blas_entries();
  for (std::size_t i = 0; i < entries.size() && i < in_front_.size(); ++i) {
    void* function = ::dlsym(RTLD_DEFAULT, entries[i].name);
    ::Dl_info where{};
    if (function == nullptr || ::dladdr(function, &where) == 0 || where.dli_fname == nullptr) continue;
    std::string_view file(where.dli_fname);
    file.remove_prefix(file.rfind('/') + 1);
    if (!file.starts_with(kCublas) && !file.starts_with(kCublasLt)) in_front_[i] = function;
  }
}

bool ImportPatcher::changed() noexcept {
  struct Seen {
    unsigned long long adds = 0, subs = 0;
  } seen;
  ::dl_iterate_phdr(
      [](::dl_phdr_info* info, std::size_t size, void* out) {
        if (size >= offsetof(::dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs)
          *static_cast<Seen*>(out) = {info->dlpi_adds, info->dlpi_subs};
        return 1;
      },
      &seen);
  const bool other = !scanned_ || seen.adds != adds_ || seen.subs != subs_;
  adds_ = seen.adds;
  subs_ = seen.subs;
  if (other) {
    wait_next_ = 1;
    return true;
  }
  if (!wait_ || (wait_scans_ != 0 && --wait_scans_ != 0)) return false;
  wait_next_ = wait_next_ < kMostWait ? 2 * wait_next_ : kMostWait;
  return true;
}

void ImportPatcher::scan() noexcept {
  if (without_.size() == 0 || ranges_.size() == 0 || in_front_.size() == 0 || busy_.test_and_set()) return;
  scanned_ = true;
  wait_ = false;
  range_count_ = library_count_ = 0;
  read_only_.forget();
  // Both passes see the same modules: the linker's lock is held by the outer call until they are done.
  ::dl_iterate_phdr(
      [](::dl_phdr_info*, std::size_t, void* self) {
        auto* patcher = static_cast<ImportPatcher*>(self);
        each_module([patcher](const ::dl_phdr_info& info) { patcher->collect(info); });
        each_module([patcher](const ::dl_phdr_info& info) { patcher->patch(info); });
        return 1;
      },
      this);
  if (wait_) wait_scans_ = wait_next_;
  busy_.clear();
}

void ImportPatcher::collect(const ::dl_phdr_info& info) noexcept {
  const LoadedModule module(info);
  if (range_count_ < ranges_.size()) ranges_[range_count_++] = {module.begin(), module.end()};
  saw_kernel_products_ = saw_kernel_products_ || (info.dlpi_name != nullptr && may_launch_products(info.dlpi_name));
  const bool lt = module.name().starts_with(kCublasLt);
  if (!module.usable() || library_count_ == kMostLibraries || (!lt && !module.name().starts_with(kCublas))) return;
  // The object that `info` points to is gone after this call; the parts that LoadedModule keeps are in the module.
  auto* kept = new (library_space_ + library_count_ * sizeof(LoadedModule)) LoadedModule(module);
  libraries_[library_count_++] = {kept, lt ? BlasEntry::Library::kCublasLt : BlasEntry::Library::kCublas};
}

void ImportPatcher::patch(const ::dl_phdr_info& info) noexcept {
  const LoadedModule module(info);
  static const char own = 0;
  if (!module.usable() || known_without(module.key()) || module.contains(reinterpret_cast<std::uintptr_t>(&own)) ||
      is_off_limits(module.name()))
    return;
  const bool looks_up = real_dlsym() != nullptr && may_look_up_blas(module.name());
  bool any = false;
  const auto wanted = [looks_up](const char* name) {
    // Of thousands of names hardly one begins with this letter and the next.
    return (name[0] == 'c' && name[1] == 'u' && std::strncmp(name, "cublas", 6) == 0) ||
           (looks_up && name[0] == 'd' && std::strcmp(name, "dlsym") == 0);
  };
  module.each_import(wanted, [&](const char* name, std::uintptr_t slot) {
    if (slot % sizeof(void*) != 0) return;
    if (const BlasEntry* entry = find_blas_entry(name); entry != nullptr) {
      any = true;
      patch_slot(module, *entry, slot);
    } else if (name[0] == 'd') {
      any = true;
      patch_look_up(module, slot);
    }
  });
  close_page();
  if (!any) note_without(module.key());
}

/// Slots of one page lie together. False where the linker still works on it.
bool ImportPatcher::open_page(std::uintptr_t page) noexcept {
  if (page == open_page_) return true;
  close_page();
  if (!read_only_.contains(page)) {
    wait_ = true;
    return false;
  }
  if (::mprotect(reinterpret_cast<void*>(page), page_bytes(), PROT_READ | PROT_WRITE) != 0) return false;
  open_page_ = page;
  return true;
}

void ImportPatcher::close_page() noexcept {
  if (open_page_ != 0) (void)::mprotect(reinterpret_cast<void*>(open_page_), page_bytes(), PROT_READ);
  open_page_ = 0;
}

void ImportPatcher::patch_slot(const LoadedModule& module, const BlasEntry& entry, std::uintptr_t slot) noexcept {
  void* value = load(slot);
  for (void* hook : entry.hooks)
    if (value == hook) return;
  const auto address = reinterpret_cast<std::uintptr_t>(value);
  const bool unbound = module.contains(address);
  // Neither in this module nor in another: the linker is about to fill it in.
  void* function = unbound ? unbound_target(module, entry) : in_a_module(address) ? value : nullptr;
  if (function == nullptr) {
    wait_ = true;
    return;
  }
  void* hook = hook_for(entry, function, [&](const char* name) { return helper(entry, function, name); });
  if (hook != nullptr) put(module, slot, hook, unbound);
}

/// Only where the module would get the dlsym that the hook goes on to.
void ImportPatcher::patch_look_up(const LoadedModule& module, std::uintptr_t slot) noexcept {
  void* value = load(slot);
  const bool unbound = module.contains(reinterpret_cast<std::uintptr_t>(value));
  if (value == real_dlsym() || unbound)
    put(module, slot, hooked_dlsym(), unbound);
  else
    wait_ = wait_ || (value != hooked_dlsym() && !in_a_module(reinterpret_cast<std::uintptr_t>(value)));
}

void ImportPatcher::put(const LoadedModule& module, std::uintptr_t slot, void* hook, bool unbound) noexcept {
  if (module.read_only_later(slot)) {
    // Until the linker has made it read-only, it is still at work on this module.
    if (!open_page(slot & ~(page_bytes() - 1))) return;
    store(slot, hook);
  } else {
    if (!module.writable(slot)) return;
    store(slot, hook);
    // A thread that is inside the linker for this slot writes its answer over ours: look once more.
    wait_ = wait_ || unbound;
  }
  patched_.fetch_add(1, std::memory_order_relaxed);
}

/// The linker's answer for a slot that it has not filled in: the tool in front of all, or the library that the
/// module needs. nullptr: known after its first call.
void* ImportPatcher::unbound_target(const LoadedModule& module, const BlasEntry& entry) const noexcept {
  if (void* function = in_front_[static_cast<std::size_t>(&entry - blas_entries().data())]; function != nullptr)
    return function;
  for (std::uint32_t i = 0; i < library_count_; ++i) {
    const Library& library = libraries_[i];
    if (library.kind != entry.library || !module.needs(library.module->name())) continue;
    if (void* function = library.module->find(entry.name); function != nullptr) return function;
  }
  return nullptr;
}

/// A function of the library that `function` is of; where that is another tool's, of the first such library.
void* ImportPatcher::helper(const BlasEntry& entry, void* function, const char* name) const noexcept {
  void* first = nullptr;
  for (std::uint32_t i = 0; i < library_count_; ++i) {
    const Library& library = libraries_[i];
    if (library.kind != entry.library) continue;
    void* found = library.module->find(name);
    if (found != nullptr && library.module->contains(reinterpret_cast<std::uintptr_t>(function))) return found;
    if (first == nullptr) first = found;
  }
  return first;
}

bool ImportPatcher::in_a_module(std::uintptr_t address) const noexcept {
  for (std::uint32_t i = 0; i < range_count_; ++i)
    if (address >= ranges_[i].begin && address < ranges_[i].end) return true;
  return false;
}

bool ImportPatcher::known_without(std::uint64_t key) const noexcept {
  for (std::uint64_t i = 0, at = key; i < kMostModules; ++i, ++at) {
    const std::uint64_t held = without_[at % kMostModules];
    if (held == 0 || held == key) return held == key;
  }
  return false;
}

void ImportPatcher::note_without(std::uint64_t key) noexcept {
  if (key == 0 || without_count_ >= kMostModules / 2) return;
  ++without_count_;
  std::uint64_t at = key;
  while (without_[at % kMostModules] != 0) ++at;
  without_[at % kMostModules] = key;
}

}  // namespace mfu
