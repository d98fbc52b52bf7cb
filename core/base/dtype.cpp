#include "core/base/dtype.h"

#include <array>

namespace mfu {
namespace {

struct Format {
  std::string_view name;
  std::int64_t bits;
  StoredBits stored;
};
constexpr std::array<Format, kDTypes> kFormats{{
    {"fp64", 64, {64, 1}},
    {"fp32", 32, {32, 1}},
    {"tf32", 32, {32, 1}},
    {"bf16", 16, {16, 1}},
    {"fp16", 16, {16, 1}},
    {"fp8", 8, {8, 1}},
    {"int8", 8, {8, 1}},
    {"fp6", 6, {6, 1}},
    {"fp4", 4, {4, 1}},
    {"int4", 4, {4, 1}},
    {"mxfp4", 4, {17, 4}},  // 4 + 8/32
    {"nvfp4", 4, {9, 2}},   // 4 + 8/16
    {"nf4", 4, {9, 2}},     // 4 + 32/64
}};

struct Spelling {
  std::string_view text;
  DType dtype;
};

// Lower case, without a leading `torch.`, `_` and `-` removed.
constexpr Spelling kSpellings[] = {
    {"float64", DType::kFp64},     {"double", DType::kFp64},
    {"f64", DType::kFp64},         {"float32", DType::kFp32},
    {"float", DType::kFp32},       {"f32", DType::kFp32},
    {"single", DType::kFp32},      {"tensorfloat32", DType::kTf32},
    {"bfloat16", DType::kBf16},    {"bfloat", DType::kBf16},
    {"float16", DType::kFp16},     {"half", DType::kFp16},
    {"f16", DType::kFp16},         {"fp8e4m3", DType::kFp8},
    {"fp8e5m2", DType::kFp8},      {"fp8e4m3fn", DType::kFp8},
    {"float8", DType::kFp8},       {"float8e4m3", DType::kFp8},
    {"float8e4m3fn", DType::kFp8}, {"float8e4m3fnuz", DType::kFp8},
    {"float8e5m2", DType::kFp8},   {"float8e5m2fnuz", DType::kFp8},
    {"f8", DType::kFp8},           {"e4m3", DType::kFp8},
    {"e5m2", DType::kFp8},         {"mxfp8", DType::kFp8},
    {"i8", DType::kInt8},          {"qint8", DType::kInt8},
    {"uint8", DType::kInt8},       {"float6", DType::kFp6},
    {"mxfp6", DType::kFp6},        {"fp4e2m1", DType::kFp4},
    {"float4", DType::kFp4},       {"float4e2m1fnx2", DType::kFp4},
    {"e2m1", DType::kFp4},         {"i4", DType::kInt4},
    {"uint4", DType::kInt4},
};

}  // namespace

std::string_view name(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kFormats.size() ? kFormats[index].name : std::string_view("unknown");
}

std::int64_t dtype_bits(DType dtype) noexcept { return kFormats[static_cast<std::size_t>(dtype)].bits; }
StoredBits stored_bits(DType dtype) noexcept { return kFormats[static_cast<std::size_t>(dtype)].stored; }

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  std::array<char, 24> folded{};
  std::size_t length = 0;
  for (char c : text) {
    if (c == '_' || c == '-' || c == ' ') continue;
    if (length == folded.size()) return std::nullopt;
    folded[length++] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  std::string_view word(folded.data(), length);
  constexpr std::string_view kTorch = "torch.";
  if (word.starts_with(kTorch)) word.remove_prefix(kTorch.size());
  for (std::size_t i = 0; i < kFormats.size(); ++i)
    if (word == kFormats[i].name) return static_cast<DType>(i);
  for (const Spelling& spelling : kSpellings)
    if (word == spelling.text) return spelling.dtype;
  return std::nullopt;
}

}  // namespace mfu
