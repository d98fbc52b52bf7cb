// Values of cuBLAS's enumerations, and what they say of a product. Source: library_types.h, cublas_api.h and cublasLt.h
// of CUDA 13.0; a value never changes its meaning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

namespace mfu {

struct ElementType {
  DType dtype = DType::kFp32;
  bool complex = false;
  bool known = false;  ///< false: there is no matrix product of this type
};

namespace detail {
struct NumberedType {
  std::size_t number;  ///< cudaDataType
  DType dtype;
  bool complex = false;
};
inline constexpr NumberedType kNumberedTypes[] = {
    {0, DType::kFp32},         // CUDA_R_32F
    {1, DType::kFp64},         // CUDA_R_64F
    {2, DType::kFp16},         // CUDA_R_16F
    {3, DType::kInt8},         // CUDA_R_8I
    {4, DType::kFp32, true},   // CUDA_C_32F
    {5, DType::kFp64, true},   // CUDA_C_64F
    {6, DType::kFp16, true},   // CUDA_C_16F
    {7, DType::kInt8, true},   // CUDA_C_8I
    {8, DType::kInt8},         // CUDA_R_8U
    {9, DType::kInt8, true},   // CUDA_C_8U
    {10, DType::kFp32},        // CUDA_R_32I, of results alone: it has no name, and its four bytes alone matter
    {14, DType::kBf16},        // CUDA_R_16BF
    {15, DType::kBf16, true},  // CUDA_C_16BF
    {16, DType::kInt4},        // CUDA_R_4I
    {18, DType::kInt4},        // CUDA_R_4U
    {28, DType::kFp8},         // CUDA_R_8F_E4M3
    {29, DType::kFp8},         // CUDA_R_8F_E5M2
    {31, DType::kFp6},         // CUDA_R_6F_E2M3
    {32, DType::kFp6},         // CUDA_R_6F_E3M2
    {33, DType::kFp4},         // CUDA_R_4F_E2M1
};
inline constexpr std::size_t kMostElementTypes = 34;
/// By cudaDataType; one more than there are, for those beyond.
inline constexpr std::array<ElementType, kMostElementTypes + 1> kElementTypes = [] {
  std::array<ElementType, kMostElementTypes + 1> types{};
  for (const NumberedType& type : kNumberedTypes) types[type.number] = {type.dtype, type.complex, true};
  return types;
}();
}  // namespace detail

/// hot. The type that a cudaDataType means.
[[nodiscard]] constexpr const ElementType& element_type(std::int32_t cuda_data_type) noexcept {
  const std::size_t at = static_cast<std::uint32_t>(cuda_data_type);
  return detail::kElementTypes[at < detail::kMostElementTypes ? at : detail::kMostElementTypes];
}

/// cublasComputeType_t. C++ programs may pass a cudaDataType instead, which an inline function of the header turns into
/// one of these before the call.
inline constexpr std::int32_t kCompute32f = 68, kCompute32fFast16f = 74, kCompute32fFast16bf = 75,
                              kCompute32fFastTf32 = 77;

/// cublasMath_t, without its flag 16 (CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION).
inline constexpr std::int32_t kMathFlags = 16, kMathTensorOp = 1, kMathTf32TensorOp = 3;

/// The input of the multipliers where the operands are single precision. Under CUBLAS_TENSOR_OP_MATH they are rounded
/// to half precision, as the documentation of cublasMath_t says.
[[nodiscard]] constexpr DType single_precision_as(std::int32_t compute, std::int32_t math_mode) noexcept {
  if (compute == kCompute32fFastTf32) return DType::kTf32;
  if (compute == kCompute32fFast16f) return DType::kFp16;
  if (compute == kCompute32fFast16bf) return DType::kBf16;
  if (compute != kCompute32f) return DType::kFp32;  // CUBLAS_COMPUTE_32F_PEDANTIC, or an emulation of it
  const std::int32_t mode = math_mode & ~kMathFlags;
  return mode == kMathTf32TensorOp ? DType::kTf32 : mode == kMathTensorOp ? DType::kFp16 : DType::kFp32;
}

/// cublasLtMatrixLayoutAttribute_t and cublasLtMatmulDescAttributes_t.
inline constexpr int kLayoutType = 0, kLayoutRows = 2, kLayoutColumns = 3, kLayoutBatchCount = 5, kLayoutBatchMode = 8;
inline constexpr int kDescComputeType = 0, kDescTransposeA = 3, kDescTransposeB = 4, kDescScaleModeA = 31;
/// cublasLtBatchMode_t: sizes of a grouped layout lie in device memory.
inline constexpr std::int32_t kBatchModeStrided = 0, kBatchModePointers = 1;
/// cublasLtMatmulMatrixScale_t
inline constexpr std::int32_t kScaleVec16Ue4m3 = 1, kScaleVec32Ue8m0 = 2;

}  // namespace mfu
