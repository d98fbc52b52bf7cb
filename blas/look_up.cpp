#include "blas/look_up.h"

#include <dlfcn.h>

#include "blas/entries.h"

using DlSym = void* (*)(void*, const char*);

// Named for the assembly below; hidden, as everything of ours.
extern "C" {
[[gnu::visibility("hidden")]] DlSym mfu_blas_next_dlsym = &::dlsym;
[[gnu::visibility("hidden")]] void* mfu_blas_look_up(void* handle, const char* name) noexcept;
[[gnu::visibility("hidden")]] void* mfu_blas_dlsym(void* handle, const char* name);
}

// RTLD_DEFAULT is 0 and RTLD_NEXT is -1: whatever else is a handle.
#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.globl mfu_blas_dlsym\n.hidden mfu_blas_dlsym\n.type mfu_blas_dlsym, @function\n"
    "mfu_blas_dlsym:\n"
    ".cfi_startproc\n"
    "  endbr64\n"
    "  leaq 1(%rdi), %rax\n"
    "  cmpq $1, %rax\n"
    "  ja mfu_blas_look_up\n"
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
    "  b.hi mfu_blas_look_up\n"
    "  adrp x16, mfu_blas_next_dlsym\n"
    "  ldr x16, [x16, :lo12:mfu_blas_next_dlsym]\n"
    "  br x16\n"
    ".cfi_endproc\n"
    ".size mfu_blas_dlsym, .-mfu_blas_dlsym\n");
#endif

void* mfu_blas_look_up(void* handle, const char* name) noexcept {
  void* function = mfu_blas_next_dlsym(handle, name);
  if (function == nullptr || name == nullptr || name[0] != 'c' || name[1] != 'u' || name[2] != 'b') return function;
  const mfu::BlasEntry* entry = mfu::find_blas_entry(name);
  if (entry == nullptr) return function;
  const auto helper = [handle](const char* other) { return mfu_blas_next_dlsym(handle, other); };
  void* hook = mfu::hook_for(*entry, function, helper);
  (void)::dlerror();  // what was looked up beside it may have left an error; the host asks for its own
  return hook != nullptr ? hook : function;
}

namespace mfu {

bool looks_up_blas(std::string_view module) noexcept {
  for (const std::string_view part : {"libcudnn", "xla", "pjrt", "tensorflow", "cupy", "libtriton"})
    if (module.find(part) != std::string_view::npos) return true;
  return false;
}

void* real_dlsym() noexcept { return reinterpret_cast<void*>(mfu_blas_next_dlsym); }
void* hooked_dlsym() noexcept { return reinterpret_cast<void*>(&mfu_blas_dlsym); }

}  // namespace mfu
