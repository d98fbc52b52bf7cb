#include "cuda/kernel_products.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace mfu {
namespace {

struct Kernel {
  std::string_view name;  ///< mangled: with its length in front
  std::uint8_t rows;      ///< index of the parameter m; n and k follow
  std::uint8_t least;     ///< unsigned template arguments in front of M, N, K: at least so many,
  std::uint8_t most;      ///< and at most; they grew with the versions
  DType operands;
};

constexpr Kernel kKernels[] = {
    {"23sm90_fp8_gemm_1d2d_impl", 2, 0, 0, DType::kFp8},  {"23sm90_fp8_gemm_1d1d_impl", 4, 0, 0, DType::kFp8},
    {"19sm90_bf16_gemm_impl", 1, 0, 0, DType::kBf16},     {"20sm100_bf16_gemm_impl", 1, 0, 0, DType::kBf16},
    {"24sm100_fp8_gemm_1d1d_impl", 1, 0, 3, DType::kFp8}, {"28sm100_fp8_fp4_gemm_1d1d_impl", 1, 0, 3, DType::kFp8},
};

constexpr std::size_t kMostNumbers = 8;

/// Numbers of the template arguments that are unsigned: `Lj4096E`. At most kMostNumbers, the first ones.
std::size_t unsigned_arguments(std::string_view text, std::uint64_t (&numbers)[kMostNumbers]) noexcept {
  std::size_t count = 0;
  for (std::size_t at = text.find("Lj"); at != std::string_view::npos && count < kMostNumbers;
       at = text.find("Lj", at)) {
    at += 2;
    std::uint64_t number = 0;
    constexpr std::uint64_t kMost = std::uint64_t{1} << 32;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && number < kMost; ++at)
      number = number * 10 + static_cast<std::uint64_t>(text[at] - '0');
    if (at >= text.size() || text[at] != 'E') return 0;
    numbers[count++] = number;
  }
  return count;
}

}  // namespace

bool product_of_kernel(const char* symbol, const void* const* parameters, Product& product) noexcept {
  if (!may_be_product(symbol) || parameters == nullptr) return false;
  constexpr std::string_view kNamespace = "_ZN9deep_gemm";
  constexpr std::size_t kMostName = 4096;
  std::string_view name(symbol, ::strnlen(symbol, kMostName));
  if (!name.starts_with(kNamespace)) return false;
  name.remove_prefix(kNamespace.size());
  for (const Kernel& kernel : kKernels) {
    if (!name.starts_with(kernel.name)) continue;
    name.remove_prefix(kernel.name.size());
    // GemmType::Normal; the others are products of groups. Behind it are a flag, in some, and the types.
    constexpr std::string_view kNormal = "8GemmTypeE0E";
    const std::size_t type = name.find(kNormal);
    if (type == std::string_view::npos) return false;
    std::string_view types = name.substr(type + kNormal.size());
    if (types.starts_with("Lb")) types.remove_prefix(types.size() < 4 ? types.size() : 4);
    std::uint64_t compiled[kMostNumbers];
    const std::size_t count = unsigned_arguments(name, compiled);
    std::uint32_t sizes[3];
    for (std::size_t i = 0; i < 3; ++i) {
      if (parameters[kernel.rows + i] == nullptr) return false;
      std::memcpy(&sizes[i], parameters[kernel.rows + i], sizeof sizes[i]);
      if (sizes[i] == 0) return false;
    }
    for (std::size_t first = kernel.least; first <= kernel.most && first + 3 <= count; ++first) {
      bool same = compiled[first + 1] != 0 && compiled[first + 2] != 0;  // without these nothing vouches for the layout
      for (std::size_t i = 0; i < 3; ++i) same = same && (compiled[first + i] == 0 || compiled[first + i] == sizes[i]);
      if (!same) continue;
      // Row-major D (m x n) = A (m x k) B (n x k)^T: cuBLAS would be asked for it as n x m.
      product = {};
      product.m = sizes[1];
      product.n = sizes[0];
      product.k = sizes[2];
      product.transpose_a = true;
      product.operands = kernel.operands;
      product.result = types.starts_with("f") ? DType::kFp32 : DType::kBf16;
      return true;
    }
    return false;
  }
  return false;
}

}  // namespace mfu
