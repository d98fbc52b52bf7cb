// The answer to programs that look up cuBLAS's functions by name.
#pragma once

#include <string_view>

namespace mfu {

/// False for modules that never look up functions of cuBLAS: the driver, the runtime, cuBLAS itself. All others may:
/// XLA (a separate table, filled at the first call of each; xla/tsl/cuda/cublas_stub.cc), cuDNN, CuPy, Triton
/// (third_party/nvidia/include/cublas_instance.h), Python's ctypes, a program by itself.
[[nodiscard]] bool may_look_up_blas(std::string_view module) noexcept;

/// [before any look-up is hooked] Takes the C library's dlsym where the address that this library got is the program's.
void find_real_dlsym() noexcept;
/// The C library's dlsym, or another tool's in front of it: the function of a module whose slot was not changed.
/// nullptr: not found.
[[nodiscard]] void* real_dlsym() noexcept;
/// [any thread] In its place: the hook for a name that blas_entries() has and a library handle, what dlsym says else. A
/// look-up that depends on who asks (RTLD_NEXT, RTLD_DEFAULT), or is for another library's name, goes on to dlsym by a
/// jump, so that the caller stays the caller.
[[nodiscard]] void* hooked_dlsym() noexcept;

}  // namespace mfu
