// What programs get that look up cuBLAS's functions by name.
#pragma once

#include <cstdint>
#include <string_view>

namespace mfu {

/// Modules that look functions of cuBLAS up with dlsym instead of importing them: XLA (a table of its own, filled at
/// the first call of each; xla/tsl/cuda/cublas_stub.cc), cuDNN, CuPy, Triton
/// (third_party/nvidia/include/cublas_instance.h).
[[nodiscard]] bool looks_up_blas(std::string_view module) noexcept;

/// The C library's dlsym, or another tool's in front of it: what a module calls whose slot was not changed.
[[nodiscard]] void* real_dlsym() noexcept;
/// [any thread] In its place: the hook for a name that blas_entries() has and a library handle, what dlsym says else. A
/// look-up that depends on who asks (RTLD_NEXT, RTLD_DEFAULT) goes on to dlsym by a jump, so that the caller stays the
/// caller.
[[nodiscard]] void* hooked_dlsym() noexcept;

}  // namespace mfu
