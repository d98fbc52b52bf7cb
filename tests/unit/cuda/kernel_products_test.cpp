// Symbols as a C++ compiler mangles the declarations of DeepGEMM 2.1.0 and of its newest source.
#include "cuda/kernel_products.h"

#include <gtest/gtest.h>

#include <string>

namespace mfu {
namespace {

const std::string k1d2d =
    "_ZN9deep_gemm23sm90_fp8_gemm_1d2d_implILN4cute4UMMA5MajorE0ELj0ELj4096ELj7168ELj1ELj128ELj128ELj128ELNS_"
    "8GemmTypeE0EN7cutlass10bfloat16_tEEEvPfPijjj";
const std::string kBf16 = "_ZN9deep_gemm19sm90_bf16_gemm_implILj0ELj4096ELj7168ELj1ELNS_8GemmTypeE0ELb1EfEEvPijjj";

/// A launch with these parameters: `before` pointers, then m, n, k, then descriptors.
struct Launch {
  Launch(std::size_t before, std::uint32_t m, std::uint32_t n, std::uint32_t k) : sizes{m, n, k} {
    for (auto& p : parameters) p = &other;
    for (std::size_t i = 0; i < 3; ++i) parameters[before + i] = &sizes[i];
  }
  std::uint32_t sizes[3];
  std::uint64_t other = 0x7F00'0000'1234;
  const void* parameters[12];
};

TEST(KernelProducts, DeepGemmSaysItsSizes) {
  Product p;
  ASSERT_TRUE(product_of_kernel(k1d2d.c_str(), Launch(2, 333, 4096, 7168).parameters, p));
  EXPECT_EQ(p.m, 4096u);
  EXPECT_EQ(p.n, 333u);
  EXPECT_EQ(p.k, 7168u);
  EXPECT_EQ(p.batch, 1u);
  EXPECT_TRUE(p.transpose_a);
  EXPECT_FALSE(p.transpose_b);
  EXPECT_EQ(p.operands, DType::kFp8);
  EXPECT_EQ(p.result, DType::kBf16);
  EXPECT_EQ(p.flop(), 2.0 * 333 * 4096 * 7168);
  ASSERT_TRUE(product_of_kernel(kBf16.c_str(), Launch(1, 1, 4096, 7168).parameters, p));
  EXPECT_EQ(p.operands, DType::kBf16);
  EXPECT_EQ(p.result, DType::kFp32);
  // Older: no argument in front of M; newer for Blackwell: three.
  for (const char* symbol :
       {"_ZN9deep_gemm23sm90_fp8_gemm_1d2d_implILj0ELj4096ELj7168ELj1ELNS_8GemmTypeE0EEEvPfPijjj",
        "_ZN9deep_gemm28sm100_fp8_fp4_gemm_1d1d_implILj128ELj128ELj64ELj0ELj4096ELj7168ELNS_8GemmTypeE0EEEvPijjj",
        "_ZN9deep_gemm28sm100_fp8_fp4_gemm_1d1d_implILj128ELj128ELj0ELj4096ELj7168ELNS_8GemmTypeE0EEEvPijjj",
        "_ZN9deep_gemm23sm90_fp8_gemm_1d1d_implILj77ELj4096ELj7168ELj1ELNS_8GemmTypeE0EfEEvPiS1_S1_S1_jjj"}) {
    const std::string name = symbol;
    const std::size_t before = name.find("1d2d") != std::string::npos   ? 2
                               : name.find("sm90") != std::string::npos ? 4
                                                                        : 1;
    ASSERT_TRUE(product_of_kernel(symbol, Launch(before, 77, 4096, 7168).parameters, p)) << symbol;
    EXPECT_EQ(p.flop(), 2.0 * 77 * 4096 * 7168) << symbol;
  }
}

TEST(KernelProducts, WhatIsNotForSureIsNotKnown) {
  Product p;
  const Launch fits(2, 333, 4096, 7168);
  EXPECT_FALSE(product_of_kernel(nullptr, fits.parameters, p));
  EXPECT_FALSE(product_of_kernel(k1d2d.c_str(), nullptr, p));
  // Parameters in another order, or none that is a size.
  EXPECT_FALSE(product_of_kernel(k1d2d.c_str(), Launch(2, 4096, 333, 7168).parameters, p));
  EXPECT_FALSE(product_of_kernel(k1d2d.c_str(), Launch(1, 333, 4096, 7168).parameters, p));
  EXPECT_FALSE(product_of_kernel(k1d2d.c_str(), Launch(2, 0, 4096, 7168).parameters, p));
  const auto with = [&](std::string symbol, const std::string& old, const std::string& by) {
    symbol.replace(symbol.find(old), old.size(), by);
    return product_of_kernel(symbol.c_str(), fits.parameters, p);
  };
  EXPECT_TRUE(with(k1d2d, "Lj1E", "Lj1E"));
  EXPECT_FALSE(with(k1d2d, "GemmTypeE0", "GemmTypeE1"));  // rows of a mixture of experts: in device memory
  EXPECT_FALSE(with(k1d2d, "GemmTypeE0", "GemmTypeE2"));
  EXPECT_FALSE(with(k1d2d, "Lj0ELj4096", "Lj332ELj4096"));  // m is compiled in, and another
  EXPECT_FALSE(with(k1d2d, "Lj4096ELj7168", "Lj0ELj0"));    // nothing vouches for the parameters
  EXPECT_FALSE(with(k1d2d, "Lj4096E", "Lj4096"));
  EXPECT_FALSE(with(k1d2d, "23sm90_fp8_gemm_1d2d_impl", "24sm90_fp8_mqa_logits_impl"));
  EXPECT_FALSE(with(k1d2d, "9deep_gemm", "9deep_gelm"));
  for (std::size_t length = 0; length < k1d2d.size(); ++length) {
    const std::string cut = k1d2d.substr(0, length);
    EXPECT_TRUE(length >= k1d2d.find("GemmTypeE0E") + 11 || !product_of_kernel(cut.c_str(), fits.parameters, p));
  }
  const void* none[12] = {};
  EXPECT_FALSE(product_of_kernel(k1d2d.c_str(), none, p));
}

}  // namespace
}  // namespace mfu
