#include "tests/frameworks/simulated/product.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/frameworks/simulated/kernel.h"
#include "tools/simgpu/driver_lookup.h"

namespace mfu::sim {
namespace {

std::uint64_t sm_count() {
  static const int count = [] {
    CUdevice device = 0;
    int value = 0;
    if (DRIVER(cuCtxGetDevice)(&device) == CUDA_SUCCESS) {
      DRIVER(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    }
    return std::max(value, 1);
  }();
  return static_cast<std::uint64_t>(count);
}

/// A kernel whose parameters are its length: thousands of FLOP per block, and bytes per block.
CUresult launch(const std::string& name, double efficiency, double flop, double bytes, std::uint64_t blocks,
                CUstream stream) {
  blocks = std::clamp<std::uint64_t>(blocks, 1, 0x7FFFFFFF);
  const auto per_block = [&](double total) {
    return static_cast<std::uint32_t>(std::clamp(total / static_cast<double>(blocks), 1.0, 4e9));
  };
  std::uint32_t kiloflop = per_block(flop / 1000), block_bytes = per_block(bytes);
  void* params[] = {&kiloflop, &block_bytes};
  const std::string cost =
      "flop_per_block=1000 flop_param=0 bytes_per_block=1 bytes_param=1 efficiency=" + std::to_string(efficiency);
  return launch_by_name(name, cost, static_cast<std::uint32_t>(blocks), 384, params, stream);
}

// Types ----------------------------------------------------------------------------------------------------------

struct TypeInfo {
  DataType type;
  const char* name;    ///< in the log
  const char* letter;  ///< in kernel names
  double bytes;
  double speed;  ///< of an H100's dense products of this type, relative to bfloat16
};
constexpr TypeInfo kTypes[] = {
    {DataType::kF32, "f32", "s", 4, 67.0 / 989.4},
    {DataType::kF64, "f64", "d", 8, 67.0 / 989.4},
    {DataType::kF16, "f16", "h", 2, 1},
    {DataType::kI8, "i8", "i", 1, 2},
    {DataType::kC64, "c64", "c", 8, 67.0 / 989.4},
    {DataType::kC128, "c128", "z", 16, 67.0 / 989.4},
    {DataType::kI32, "i32", "i", 4, 67.0 / 989.4},
    {DataType::kBf16, "bf16", "t", 2, 1},
    {DataType::kE4m3, "e4m3", "q", 1, 2},
    {DataType::kE5m2, "e5m2", "r", 1, 2},
    {DataType::kE2m1, "e2m1", "o", 0.5, 2},
};

const TypeInfo& info(DataType type) {
  for (const TypeInfo& t : kTypes) {
    if (t.type == type) return t;
  }
  return kTypes[0];
}

bool complex(DataType type) { return type == DataType::kC64 || type == DataType::kC128; }

// Which kernel ---------------------------------------------------------------------------------------------------

struct Choice {
  std::string name;
  double efficiency = 0.7;
  std::uint64_t blocks = 1;
  bool split_k = false;
};

std::int64_t tiles(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

/// The family follows the library of CUDA 13 on an H100: nvjet for 16 and 8 bits, xmma for TF32, CUTLASS SIMT for plain
/// float, gemv for a single column or row.
Choice choose(const Product& p) {
  Choice c;
  const char ta = p.transpose_a ? 'T' : 'N', tb = p.transpose_b ? 'T' : 'N';
  const bool tf32 = p.a == DataType::kF32 && (p.compute == kComputeTf32 || p.compute == 74 || p.compute == 75);
  const bool wide = p.a == DataType::kF32 || p.a == DataType::kF64 || complex(p.a);
  char text[256];
  if (std::min(p.m, p.n) == 1) {
    c.name =
        p.a == DataType::kBf16 ? "_ZN8internal5gemvx6kernelIii13__nv_bfloat16S2_S2_fLb0ELb1ELb1ELb0ELi7ELb0E18cublasG"
                                 "emvParamsExIi30cublasGemvTensorStridedBatchedIKS2_ES6_S4_IS2_EfEEENSt9enable_ifI"
                                 "XntT5_EvE4typeET11_"
        : p.a == DataType::kF16
            ? "_ZN8internal5gemvx6kernelIii6__halfS2_S2_fLb0ELb1ELb1ELb0ELi7ELb0E18cublasGemvParamsExIi30cublasGemvT"
              "ensorStridedBatchedIKS2_ES6_S4_IS2_EfEEENSt9enable_ifIXntT5_EvE4typeET11_"
            : "_Z17gemv2T_kernel_valIiifffLi128ELi16ELi4ELi4ELb0ELb0E18cublasGemvParamsExIi30cublasGemvTensorStrided"
              "BatchedIKfES3_S1_IfEfEEvT11_T4_S7_";
    c.efficiency = 0.8 * info(p.a).speed;
    c.blocks = static_cast<std::uint64_t>(tiles(std::max(p.m, p.n), 64) * p.batch);
    return c;
  }
  const std::int64_t tm = p.m >= 96 ? 128 : 64;
  const std::int64_t tn = p.n > 1024 ? 256 : p.n > 64 ? 128 : p.n > 32 ? 64 : p.n > 16 ? 32 : p.n > 8 ? 16 : 8;
  std::uint64_t blocks = static_cast<std::uint64_t>(tiles(p.m, tm) * tiles(p.n, tn) * p.batch);
  if (!wide) {
    c.split_k = blocks * 2 <= sm_count() && p.k >= 4096 && p.k >= 8 * std::max(p.m, p.n);
    if (c.split_k) blocks *= 4;
    std::snprintf(text, sizeof text, "nvjet_sm90_%ss%s_%lldx%lld_64x%d_%s_v_bz_%s%c%c%c", info(p.a).letter,
                  info(p.d).letter, static_cast<long long>(tm), static_cast<long long>(tn), tn >= 256 ? 4 : 6,
                  tm == 128 ? "2x1" : "1x2",
                  c.split_k                ? "splitK_"
                  : tm == 128 && tn >= 128 ? "coopA_"
                                           : "",
                  ta, tb, 'N');
    c.blocks = std::min(blocks, sm_count());  // persistent
    c.efficiency = 0.74 * info(p.a).speed;
  } else if (tf32) {
    std::snprintf(text, sizeof text,
                  "sm90_xmma_gemm_f32f32_tf32f32_f32_%c%c_n_tilesize%lldx%lldx32_warpgroupsize%dx1x1_execute_segment_k_"
                  "off_kernel__5x_cublas",
                  ta + 32, tb + 32, static_cast<long long>(tm), static_cast<long long>(tn), tm == 128 ? 2 : 1);
    c.blocks = std::min(blocks, sm_count());
    c.efficiency = 0.7 * 0.5;
  } else {
    std::snprintf(text, sizeof text,
                  "_ZN7cutlass7Kernel2I%dcutlass_80_simt_%cgemm_%lldx%lld_8x4_%c%c_align1EEvNT_6ParamsE",
                  p.a == DataType::kF32 ? 40 : 41, *info(p.a).letter, static_cast<long long>(tm),
                  static_cast<long long>(tn), ta + 32, tb + 32);
    c.blocks = blocks;
    c.efficiency = 0.85 * info(p.a).speed;
  }
  c.name = text;
  return c;
}

// The log --------------------------------------------------------------------------------------------------------

const std::string& log_path() {
  static const std::string* const path = [] {
    const char* text = std::getenv("SIMGPU_PRODUCTS");
    return new std::string(text == nullptr ? "" : text);
  }();
  return *path;
}

void write_line(const Product& p, const char* name, int kernels, CUstream stream) {
  if (log_path().empty()) return;
  static const int fd = open(log_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  char line[768];
  const int length = std::snprintf(
      line, sizeof line,
      "{\"type\":\"product\",\"pid\":%ld,\"thread\":%ld,\"t_ns\":%lld,\"call\":\"%s\",\"m\":%lld,\"n\":%lld,\"k\":%lld,"
      "\"batch\":%lld,\"transposes\":\"%c%c\",\"a\":\"%s\",\"b\":\"%s\",\"d\":\"%s\",\"compute\":%d,\"capturing\":%s,"
      "\"kernels\":%d,\"name\":\"%s\"}\n",
      static_cast<long>(getpid()), static_cast<long>(thread_id()), static_cast<long long>(realtime_ns()), p.call,
      static_cast<long long>(p.m), static_cast<long long>(p.n), static_cast<long long>(p.k),
      static_cast<long long>(p.batch), p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', info(p.a).name,
      info(p.b).name, info(p.d).name, p.compute, is_capturing(stream) ? "true" : "false", kernels, name);
  if (length > 0) [[maybe_unused]]
    const ssize_t n = write(fd, line, static_cast<std::size_t>(length));
}

}  // namespace

CUresult run_product(const Product& p, CUstream stream) {
  if (p.m <= 0 || p.n <= 0 || p.batch <= 0) return CUDA_SUCCESS;
  const auto count = static_cast<double>(p.batch);
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double flop = 2 * m * n * k * count * (complex(p.a) ? 4 : 1);
  const double bytes = count * (m * k * info(p.a).bytes + k * n * info(p.b).bytes + m * n * info(p.d).bytes);
  const Choice c = choose(p);
  if (const CUresult r = launch(c.name, c.efficiency, flop, bytes, c.blocks, stream); r != CUDA_SUCCESS) return r;
  int kernels = 1;
  if (c.split_k) {
    const double parts = 4 * m * n * 4 * count;
    if (const CUresult r =
            launch("_ZN8cublasLt19splitKreduce_kernelILi32ELi16EifffLb1ELb0ELb0EEEvNS_18cublasSplitKParams"
                   "IfEEPKT4_PKT5_S8_PS6_PKT6_SD_PKT7_PSE_PvxS5_SH_SH_",
                   0.6, 0, parts, static_cast<std::uint64_t>(tiles(p.m * p.n, 512)), stream);
        r != CUDA_SUCCESS) {
      return r;
    }
    ++kernels;
  }
  write_line(p, c.name.c_str(), kernels, stream);
  return CUDA_SUCCESS;
}

CUresult run_kernel(const char* name, double flop, double bytes, std::uint64_t blocks, CUstream stream) {
  return launch(name, 0.7, flop, bytes, blocks, stream);
}

}  // namespace mfu::sim
