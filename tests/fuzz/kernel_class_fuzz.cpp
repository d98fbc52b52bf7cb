// Any bytes as a kernel's name: always a class, never a read outside the name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/kernels/kernel_traits.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view name(reinterpret_cast<const char*>(data), size);
  const mfu::KernelClass c = mfu::classify_kernel(name);
  if (mfu::name(c).empty() || mfu::classify_kernel(name) != c) std::abort();
  return 0;
}
