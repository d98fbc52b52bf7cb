#include "tools/trace/operator_products.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/kernels/kernel_names.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Where an operator has its two matrices among its inputs.
struct Operator {
  std::string_view name;
  std::size_t a, b;
};
constexpr std::array kOperators{
    Operator{"aten::mm", 0, 1},          Operator{"aten::bmm", 0, 1},
    Operator{"aten::addmm", 1, 2},       Operator{"aten::baddbmm", 1, 2},
    Operator{"aten::addbmm", 1, 2},      Operator{"aten::_addmm_activation", 1, 2},
    Operator{"aten::_scaled_mm", 0, 1},  Operator{"aten::_int_mm", 0, 1},
    Operator{"aten::_grouped_mm", 0, 1}, Operator{"aten::_scaled_grouped_mm", 0, 1},
    Operator{"aten::mv", 0, 1},          Operator{"aten::addmv", 1, 2},
    Operator{"aten::linear", 0, 1},      Operator{"_C::cutlass_scaled_mm", 1, 2},
};

const Operator* find(std::string_view name) noexcept {
  const auto at =
      std::find_if(kOperators.begin(), kOperators.end(), [name](const Operator& o) { return o.name == name; });
  return at == kOperators.end() ? nullptr : &*at;
}

/// The list of lists at `index`: dims or strides of one input.
std::optional<Sizes> sizes_at(const simdjson::dom::element& all, std::size_t index) {
  simdjson::dom::array list;
  if (all.get(list) != simdjson::SUCCESS) return std::nullopt;
  simdjson::dom::array entry;
  if (list.at(index).get(entry) != simdjson::SUCCESS) return std::nullopt;
  Sizes sizes;
  for (const simdjson::dom::element value : entry) {
    std::int64_t size = 0;
    if (value.get(size) != simdjson::SUCCESS || size < 0) return std::nullopt;
    sizes.push_back(size);
  }
  return sizes;
}

std::string_view type_at(const simdjson::dom::element& all, std::size_t index) {
  simdjson::dom::array list;
  std::string_view type;
  if (all.get(list) != simdjson::SUCCESS || list.at(index).get(type) != simdjson::SUCCESS) return {};
  return type;
}

DType dtype_of(std::string_view type) noexcept {
  if (type.find("Float8") != type.npos) return DType::kFp8;
  if (type.find("Float4") != type.npos) return DType::kFp4;
  if (type.find("BFloat16") != type.npos) return DType::kBf16;
  if (type.find("Half") != type.npos) return DType::kFp16;
  if (type == "double") return DType::kFp64;
  if (type == "signed char" || type == "char") return DType::kInt8;
  return DType::kFp32;
}

/// A matrix that lies by columns: its second to last stride is 1.
bool by_columns(const std::optional<Sizes>& strides, const Sizes& dims) {
  if (!strides || strides->size() != dims.size() || dims.size() < 2) return false;
  const std::size_t n = dims.size();
  return (*strides)[n - 2] == 1 && (*strides)[n - 1] != 1;
}

}  // namespace

bool is_product_operator(std::string_view name) noexcept { return find(name) != nullptr; }

std::optional<Product> product_of_operator(std::string_view name, std::string_view dims, std::string_view strides,
                                           std::string_view types) {
  const Operator* op = find(name);
  if (op == nullptr || dims.empty()) return std::nullopt;
  simdjson::dom::parser parser, stride_parser, type_parser;
  simdjson::dom::element all, all_strides, all_types;
  if (parser.parse(simdjson::padded_string(dims)).get(all) != simdjson::SUCCESS) return std::nullopt;
  std::optional<Sizes> a = sizes_at(all, op->a), b = sizes_at(all, op->b);
  if (!a || !b || a->empty() || b->empty()) return std::nullopt;
  const bool strided =
      !strides.empty() && stride_parser.parse(simdjson::padded_string(strides)).get(all_strides) == simdjson::SUCCESS;
  std::optional<Sizes> a_strides, b_strides;
  if (strided) {
    a_strides = sizes_at(all_strides, op->a);
    b_strides = sizes_at(all_strides, op->b);
  }

  std::int64_t batch = 1, rows = 0, inner = 0, columns = 0;
  bool weight_by_rows = false;  // out x in, as linear has it
  if (op->name == "aten::linear") {
    if (b->size() != 2) return std::nullopt;
    inner = a->back();
    columns = (*b)[0];
    rows = 1;
    for (std::size_t i = 0; i + 1 < a->size(); ++i)
      if (__builtin_mul_overflow(rows, (*a)[i], &rows)) return std::nullopt;
    if ((*b)[1] != inner) return std::nullopt;
    weight_by_rows = true;
  } else {
    // Matrices, or batches of them. `b` may also be a vector, or a matrix for each group of the rows of `a`.
    const std::size_t n = a->size(), m = b->size();
    if (!(n == 2 && m <= 3) && !(n == 3 && m == 3)) return std::nullopt;
    rows = (*a)[n - 2];
    inner = a->back();
    columns = m == 1 ? 1 : b->back();
    if (n == 3) batch = (*a)[0];
    if ((*b)[m == 1 ? 0 : m - 2] != inner || (n == 3 && (*b)[0] != batch)) return std::nullopt;
  }
  if (batch <= 0 || rows <= 0 || inner <= 0 || columns <= 0 || batch > std::numeric_limits<std::uint32_t>::max())
    return std::nullopt;

  // The library sees the transposed product: PyTorch's rows are its columns.
  Product p;
  p.m = static_cast<std::uint64_t>(columns);
  p.n = static_cast<std::uint64_t>(rows);
  p.k = static_cast<std::uint64_t>(inner);
  p.batch = static_cast<std::uint32_t>(batch);
  p.transpose_a = strided && !weight_by_rows ? by_columns(b_strides, *b) : weight_by_rows || b->size() == 2;
  p.transpose_b = strided && by_columns(a_strides, *a);
  if (type_parser.parse(simdjson::padded_string(types)).get(all_types) == simdjson::SUCCESS)
    p.operands = p.result = dtype_of(type_at(all_types, op->a));
  if (p.operands == DType::kFp8 || p.operands == DType::kFp4) p.result = DType::kBf16;
  return p;
}

void link_products(Trace& trace) {
  if (trace.operators.empty()) return;
  trace.product_of_activity.resize(trace.activities.size());
  // By thread and time; of two that begin together the longer one is around the other.
  std::vector<std::uint32_t> order(trace.operators.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::uint32_t x, std::uint32_t y) {
    const TraceOperator &a = trace.operators[x], &b = trace.operators[y];
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    return a.end_ns > b.end_ns;
  });
  // Activities by thread and time of their launch.
  std::vector<std::uint32_t> launched;
  std::vector<std::int8_t> is_gemm(trace.strings.size(), -1);
  std::vector<DType> dtype(trace.strings.size(), DType::kFp32);
  for (std::uint32_t i = 0; i < trace.activities.size(); ++i) {
    const TraceActivity& activity = trace.activities[i];
    if (activity.kind != ActivityKind::kKernel || activity.launch == kNoLaunch) continue;
    std::int8_t& known = is_gemm[activity.name];
    if (known < 0) {
      const std::string name = demangle(trace.strings.at(activity.name));
      known = classify_kernel(name) == KernelClass::kGemm ? 1 : 0;
      dtype[activity.name] = matmul_dtype(name).value_or(DType::kFp32);
    }
    if (known == 1) launched.push_back(i);
  }
  const auto launch_of = [&](std::uint32_t activity) -> const TraceLaunch& {
    return trace.launches[trace.activities[activity].launch];
  };
  std::sort(launched.begin(), launched.end(), [&](std::uint32_t x, std::uint32_t y) {
    const TraceLaunch &a = launch_of(x), &b = launch_of(y);
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    return trace.activities[x].begin_ns < trace.activities[y].begin_ns;
  });
  std::vector<std::uint32_t> around;  // operators that are open, the nearest last
  std::vector<bool> begun(trace.operators.size());
  std::size_t next = 0;
  for (const std::uint32_t activity : launched) {
    const TraceLaunch& launch = launch_of(activity);
    while (next < order.size()) {
      const TraceOperator& op = trace.operators[order[next]];
      const bool before = op.thread != launch.thread ? op.thread < launch.thread : op.begin_ns <= launch.begin_ns;
      if (!before) break;
      if (op.thread == launch.thread) around.push_back(order[next]);
      ++next;
    }
    while (!around.empty() && (trace.operators[around.back()].thread != launch.thread ||
                               trace.operators[around.back()].end_ns <= launch.begin_ns))
      around.pop_back();
    if (around.empty()) continue;
    const std::uint32_t nearest = around.back();
    TraceProduct& product = trace.product_of_activity[activity];
    product.product = trace.operators[nearest].product;
    // The library may round fp32 operands: its kernel's name says so.
    if (product.product->operands == DType::kFp32 && dtype[trace.activities[activity].name] == DType::kTf32)
      product.product->operands = DType::kTf32;
    product.first = !begun[nearest];
    begun[nearest] = true;
  }
}

std::optional<std::pair<Product, bool>> recorded_product(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  if (parser.parse(simdjson::padded_string(json)).get(list) != simdjson::SUCCESS || list.size() < 9)
    return std::nullopt;
  const auto type = [&list](std::size_t i) -> std::optional<DType> {
    std::string_view text;
    return list.at(i).get(text) == simdjson::SUCCESS ? parse_dtype(text) : std::nullopt;
  };
  std::array<std::uint64_t, 9> values{};
  for (const std::size_t i : {0, 1, 2, 3, 4, 5, 8})
    if (list.at(i).get(values[i]) != simdjson::SUCCESS) return std::nullopt;
  const std::optional<DType> operands = type(6), result = type(7);
  if (!operands || !result || values[3] > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  Product p;
  p.m = values[0];
  p.n = values[1];
  p.k = values[2];
  p.batch = static_cast<std::uint32_t>(values[3]);
  p.transpose_a = values[4] != 0;
  p.transpose_b = values[5] != 0;
  p.operands = *operands;
  p.result = *result;
  if (p.m == 0) p.kind = Product::Kind::kUnsized;
  return std::pair(p, values[8] != 0);
}

}  // namespace mfu
