#include "cuda/blas/look_up.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

#include "cuda/blas/entries.h"
#include "cuda/blas/loaded_module.h"

using DlSym = void* (*)(void*, const char*);

// Named for the assembly below; hidden, as everything here.
extern "C" {
[[gnu::visibility("hidden")]] DlSym mfu_blas_next_dlsym = &::dlsym;
[[gnu::visibility("hidden")]] void* mfu_blas_look_up(void* handle, const char* name) noexcept;
[[gnu::visibility("hidden")]] void* mfu_blas_dlsym(void* handle, const char* name);
}

// Asked for anything but a name that begins with `cub`, of an opened handle (RTLD_DEFAULT is 0, RTLD_NEXT is -1),
// they go on by a jump: dlsym, and any tool in its place, sees the module as its caller.
#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.globl mfu_blas_dlsym\n.hidden mfu_blas_dlsym\n.type mfu_blas_dlsym, @function\n"
    "mfu_blas_dlsym:\n"
    ".cfi_startproc\n"
    "  endbr64\n"
    "  leaq 1(%rdi), %rax\n"
    "  cmpq $1, %rax\n"
    "  jbe 1f\n"
    "  testq %rsi, %rsi\n"
    "  je 1f\n"
    "  cmpb $99, (%rsi)\n"  // c
    "  jne 1f\n"
    "  cmpb $117, 1(%rsi)\n"  // u
    "  jne 1f\n"
    "  cmpb $98, 2(%rsi)\n"  // b
    "  je mfu_blas_look_up\n"
    "1:\n"
    "  jmpq *mfu_blas_next_dlsym(%rip)\n"
    ".cfi_endproc\n"
    ".size mfu_blas_dlsym, .-mfu_blas_dlsym\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.p2align 4\n.globl mfu_blas_dlsym\n.hidden mfu_blas_dlsym\n.type mfu_blas_dlsym, %function\n"
    "mfu_blas_dlsym:\n"
    ".cfi_startproc\n"
    "  hint #34\n"  // bti c
    "  add x16, x0, #1\n"
    "  cmp x16, #1\n"
    "  b.ls 1f\n"
    "  cbz x1, 1f\n"
    "  ldrb w16, [x1]\n"
    "  cmp w16, #99\n"  // c
    "  b.ne 1f\n"
    "  ldrb w16, [x1, #1]\n"
    "  cmp w16, #117\n"  // u
    "  b.ne 1f\n"
    "  ldrb w16, [x1, #2]\n"
    "  cmp w16, #98\n"  // b
    "  b.ne 1f\n"
    "  b mfu_blas_look_up\n"
    "1:\n"
    "  adrp x16, mfu_blas_next_dlsym\n"
    "  ldr x16, [x16, :lo12:mfu_blas_next_dlsym]\n"
    "  br x16\n"
    ".cfi_endproc\n"
    ".size mfu_blas_dlsym, .-mfu_blas_dlsym\n");
#endif

void* mfu_blas_look_up(void* handle, const char* name) noexcept {
  void* function = mfu_blas_next_dlsym(handle, name);
  if (function == nullptr) return function;
  const mfu::BlasEntry* entry = mfu::find_blas_entry(name);
  if (entry == nullptr) return function;
  const auto helper = [handle](const char* other) { return mfu_blas_next_dlsym(handle, other); };
  void* hook = mfu::hook_for(*entry, function, helper);
  (void)::dlerror();  // our look-up may have left an error; the host asks for its error
  return hook != nullptr ? hook : function;
}

namespace mfu {
namespace {

/// Of a program that is linked at a fixed address and takes the address of dlsym, every other module gets that of a
/// slot of the program: the hook would come back to itself.
bool is_of_the_program(const void* function) noexcept {
  struct Asked {
    const void* function;
    bool inside;
  } asked{function, false};
  ::dl_iterate_phdr(
      [](::dl_phdr_info* program, std::size_t, void* of) {
        auto* a = static_cast<Asked*>(of);
        a->inside = LoadedModule(*program).contains(reinterpret_cast<std::uintptr_t>(a->function));
        return 1;  // it is the first one
      },
      &asked);
  return asked.inside;
}

/// nullptr where the C library has none.
DlSym of_the_c_library() noexcept {
  for (const char* name : {"libc.so.6", "libdl.so.2"}) {  // the latter before glibc 2.34
    void* library = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    void* function = ::dlsym(library, "dlsym");
    ::dlclose(library);  // the program keeps it
    if (function != nullptr) return reinterpret_cast<DlSym>(function);
  }
  return nullptr;
}

}  // namespace

bool may_look_up_blas(std::string_view module) noexcept {
  for (const std::string_view part : {"libcuda.so", "libnvidia-", "libcublas", "libcudart.so"})
    if (module.starts_with(part)) return false;
  return true;
}

void find_real_dlsym() noexcept {
  if (!is_of_the_program(reinterpret_cast<const void*>(&::dlsym))) return;
  mfu_blas_next_dlsym = of_the_c_library();
  (void)::dlerror();
}

void* real_dlsym() noexcept { return reinterpret_cast<void*>(mfu_blas_next_dlsym); }
void* hooked_dlsym() noexcept { return reinterpret_cast<void*>(&mfu_blas_dlsym); }

}  // namespace mfu
