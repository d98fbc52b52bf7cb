// The simulated libcublasLt: descriptors whose attributes can be set and read back, and the product itself (see
// product.h). Attribute numbers follow cublasLt.h. All else is a stub made from the real library's exports.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/frameworks/simulated/product.h"
#include "tools/simgpu/interface.h"

namespace {

using namespace mfu::sim;

constexpr int kSuccess = 0, kInvalidValue = 7, kExecutionFailed = 13;

/// Attributes by number, each with its size, in the room that the real library's semi-opaque type has.
template <std::size_t kAttributes>
struct Attributes {
  std::uint64_t value[kAttributes];

  int set(int attribute, const void* from, std::size_t bytes) {
    if (from == nullptr || attribute < 0 || bytes > sizeof value[0]) return kInvalidValue;
    if (static_cast<std::size_t>(attribute) >= kAttributes) return kSuccess;  // no product depends on it
    value[attribute] = 0;
    std::memcpy(&value[attribute], from, bytes);
    return kSuccess;
  }
  int get(int attribute, void* to, std::size_t bytes, std::size_t* written) const {
    if (attribute < 0 || static_cast<std::size_t>(attribute) >= kAttributes) return kInvalidValue;
    if (written != nullptr) *written = bytes;
    if (to != nullptr) std::memcpy(to, &value[attribute], std::min(bytes, sizeof value[0]));
    return kSuccess;
  }
};

/// cublasLtMatrixLayoutOpaque_t: 8 words. Attributes 0 to 6: type, order, rows, columns, leading dimension, batch
/// count, batch stride.
using Layout = Attributes<8>;
enum { kType = 0, kRows = 2, kColumns = 3, kLeading = 4, kBatch = 5 };
/// cublasLtMatmulDescOpaque_t: 32 words.
using Description = Attributes<32>;
enum { kCompute = 0, kScaleType = 1, kTransposeA = 3, kTransposeB = 4 };

DataType type_of(const Layout& layout) { return static_cast<DataType>(static_cast<int>(layout.value[kType])); }

void init(Layout& layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  layout = {};
  layout.value[kType] = static_cast<std::uint64_t>(type);
  layout.value[kRows] = rows;
  layout.value[kColumns] = columns;
  layout.value[kLeading] = static_cast<std::uint64_t>(leading);
  layout.value[kBatch] = 1;
}

}  // namespace

SIM_EXPORT int cublasLtCreate(void** handle) {
  *handle = new int(0);
  return kSuccess;
}
SIM_EXPORT int cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return kSuccess;
}
SIM_EXPORT std::size_t cublasLtGetVersion() { return 130400; }
SIM_EXPORT std::size_t cublasLtGetCudartVersion() { return 13020; }
SIM_EXPORT int cublasLtGetProperty(int type, int* value) {
  *value = type == 0 ? 13 : type == 1 ? 4 : 0;
  return kSuccess;
}
SIM_EXPORT const char* cublasLtGetStatusString(int) { return "a status of the simulated cuBLASLt"; }
SIM_EXPORT const char* cublasLtGetStatusName(int) { return "CUBLAS_STATUS_SIMULATED"; }

// Layouts and descriptions ---------------------------------------------------------------------------------------

SIM_EXPORT int cublasLtMatrixLayoutInit_internal(Layout* layout, std::size_t bytes, int type, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t leading) {
  if (bytes < sizeof(Layout)) return kInvalidValue;
  init(*layout, type, rows, columns, leading);
  return kSuccess;
}
SIM_EXPORT int cublasLtMatrixLayoutCreate(Layout** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *layout = new Layout;
  init(**layout, type, rows, columns, leading);
  return kSuccess;
}
SIM_EXPORT int cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return kSuccess;
}
SIM_EXPORT int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* from, std::size_t bytes) {
  return layout == nullptr ? kInvalidValue : layout->set(attribute, from, bytes);
}
SIM_EXPORT int cublasLtMatrixLayoutGetAttribute(const Layout* layout, int attribute, void* to, std::size_t bytes,
                                                std::size_t* written) {
  return layout == nullptr ? kInvalidValue : layout->get(attribute, to, bytes, written);
}

SIM_EXPORT int cublasLtMatmulDescInit_internal(Description* description, std::size_t bytes, int compute, int scale) {
  if (bytes < sizeof(Description)) return kInvalidValue;
  *description = {};
  description->value[kCompute] = static_cast<std::uint64_t>(compute);
  description->value[kScaleType] = static_cast<std::uint64_t>(scale);
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulDescCreate(Description** description, int compute, int scale) {
  *description = new Description;
  return cublasLtMatmulDescInit_internal(*description, sizeof(Description), compute, scale);
}
SIM_EXPORT int cublasLtMatmulDescDestroy(Description* description) {
  delete description;
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulDescSetAttribute(Description* description, int attribute, const void* from,
                                              std::size_t bytes) {
  return description == nullptr ? kInvalidValue : description->set(attribute, from, bytes);
}
SIM_EXPORT int cublasLtMatmulDescGetAttribute(const Description* description, int attribute, void* to,
                                              std::size_t bytes, std::size_t* written) {
  return description == nullptr ? kInvalidValue : description->get(attribute, to, bytes, written);
}

// Choosing an algorithm: there is one ----------------------------------------------------------------------------

struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

SIM_EXPORT int cublasLtMatmulPreferenceInit_internal(void* preference, std::size_t bytes) {
  std::memset(preference, 0, bytes);
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Algorithm{};
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Algorithm*>(preference);
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, std::size_t) { return kSuccess; }
SIM_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, const Description*, const Layout*, const Layout*, const Layout*,
                                              const Layout*, void*, int wanted, HeuristicResult* results, int* count) {
  if (wanted < 1 || results == nullptr || count == nullptr) return kInvalidValue;
  results[0] = {};
  results[0].waves = 1;
  *count = 1;
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int id, Algorithm* algorithm) {
  *algorithm = {};
  algorithm->data[0] = static_cast<std::uint64_t>(id);
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulAlgoCheck(void*, const Description*, const Layout*, const Layout*, const Layout*,
                                       const Layout*, const Algorithm*, HeuristicResult* result) {
  *result = {};
  result->waves = 1;
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm*, int, void* to, std::size_t bytes,
                                                    std::size_t* written) {
  if (to != nullptr) std::memset(to, 0, bytes);
  if (written != nullptr) *written = bytes;
  return kSuccess;
}
SIM_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(Algorithm*, int, const void*, std::size_t) { return kSuccess; }

// The product ----------------------------------------------------------------------------------------------------

SIM_EXPORT int cublasLtMatmul(void* handle, const Description* description, const void*, const void*, const Layout* a,
                              const void*, const Layout* b, const void*, const void*, const Layout*, void*,
                              const Layout* d, const Algorithm*, void*, std::size_t, CUstream stream) {
  if (handle == nullptr || description == nullptr || a == nullptr || b == nullptr || d == nullptr) return kInvalidValue;
  Product p;
  p.call = "cublasLtMatmul";
  p.transpose_a = description->value[kTransposeA] != 0;
  p.transpose_b = description->value[kTransposeB] != 0;
  p.m = static_cast<std::int64_t>(d->value[kRows]);
  p.n = static_cast<std::int64_t>(d->value[kColumns]);
  p.k = static_cast<std::int64_t>(a->value[p.transpose_a ? kRows : kColumns]);
  p.batch = static_cast<std::int64_t>(d->value[kBatch]);
  p.a = type_of(*a);
  p.b = type_of(*b);
  p.d = type_of(*d);
  p.compute = static_cast<int>(description->value[kCompute]);
  if (static_cast<std::int64_t>(b->value[p.transpose_b ? kColumns : kRows]) != p.k) return kInvalidValue;
  return run_product(p, stream) == CUDA_SUCCESS ? kSuccess : kExecutionFailed;
}
