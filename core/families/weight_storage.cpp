#include "core/families/weight_storage.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/families/read_architecture.h"

namespace mfu {
namespace {

using nlohmann::json;

/// Integer weights in groups of `group` with a 16-bit scale and a zero point of the weights' own width.
WeightFormat grouped_format(std::int64_t bits, std::int64_t group) {
  WeightFormat f;
  f.name = "int" + std::to_string(bits);
  if (group > 0) {
    f.bits_num = bits * group + 16 + bits;
    f.bits_den = group;
  } else {
    f.bits_num = bits;
  }
  return f;
}

/// True if some name that is not of one layer mentions `part`.
bool excludes(const json* names, std::string_view part) {
  if (names == nullptr || !names->is_array()) return false;
  for (const json& entry : *names) {
    if (!entry.is_string()) continue;
    const std::string text = entry.get<std::string>();
    if (text.find(part) == std::string::npos) continue;
    const bool one_layer = std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!one_layer) return true;
  }
  return false;
}

}  // namespace

WeightFormat weight_format(DType dtype) {
  constexpr std::array<std::pair<std::int64_t, std::int64_t>, kDTypes> kBits = {{{64, 1},
                                                                                 {32, 1},
                                                                                 {32, 1},
                                                                                 {16, 1},
                                                                                 {16, 1},
                                                                                 {8, 1},
                                                                                 {8, 1},
                                                                                 {6, 1},
                                                                                 {4, 1},
                                                                                 {4, 1},
                                                                                 {17, 4},   // mxfp4: 4 + 8/32
                                                                                 {9, 2},    // nvfp4: 4 + 8/16
                                                                                 {9, 2}}};  // nf4: 4 + 32/64
  const auto [numerator, denominator] = kBits[static_cast<std::size_t>(dtype)];
  return {std::string(name(dtype)), numerator, denominator};
}

std::optional<DType> stated_dtype(const Fields& f) {
  for (const Fields& source : {f, f.child("text_config"), f.child("language_config")}) {
    const json* value = source.find("torch_dtype|dtype");
    if (value == nullptr || !value->is_string()) continue;
    const auto dtype = parse_dtype(value->get<std::string>());
    if (dtype && *dtype != DType::kFp32) return dtype;
    return std::nullopt;
  }
  return std::nullopt;
}

void read_quantization(const Fields& f, Architecture& spec) {
  WeightStorage& s = spec.storage;
  const DType base = spec.compute_dtype.value_or(DType::kBf16);
  s.plain = weight_format(base);
  const json* quantization = f.find("quantization_config");
  if (quantization == nullptr) quantization = f.child("text_config").find("quantization_config");
  if (quantization == nullptr || !quantization->is_object()) return;
  std::optional<Error> ignored;  // a strange field here costs the bytes, not the FLOP
  const Fields q(*quantization, f.place() + "quantization_config.", &ignored);
  s.method = q.text_or("quant_method", q.text_or("quant_algo", ""));
  s.attention = s.mlp = s.experts = true;
  if (s.method == "mxfp4") {
    s.quantised = weight_format(DType::kMxfp4);
    s.attention = s.mlp = false;  // routed experts only (gpt-oss)
  } else if (s.method == "fp8" || s.method == "fbgemm_fp8") {
    s.quantised = weight_format(DType::kFp8);
    const json* block = q.find("weight_block_size");
    if (block != nullptr && block->is_array() && block->size() == 2 && (*block)[0].is_number_integer() &&
        (*block)[1].is_number_integer()) {
      const std::int64_t rows = (*block)[0].get<std::int64_t>(), columns = (*block)[1].get<std::int64_t>();
      if (rows > 0 && columns > 0 && rows <= 65536 && columns <= 65536) {  // one FP32 scale per block
        s.quantised.bits_num = 8 * rows * columns + 32;
        s.quantised.bits_den = rows * columns;
      }
    }
    if (q.text_or("activation_scheme", "dynamic") != "none") spec.compute_dtype = DType::kFp8;
  } else if (s.method == "awq" || s.method == "gptq") {
    const std::int64_t bits = q.integer_or("bits|w_bit", 4, 2, 8);
    const std::int64_t group = q.integer("group_size|q_group_size", -1, 1 << 20).value_or(128);
    s.quantised = grouped_format(bits, group);
  } else if (s.method == "bitsandbytes") {
    if (q.flag("load_in_8bit|_load_in_8bit", false)) {
      s.quantised = weight_format(DType::kInt8);
    } else {
      s.quantised = weight_format(q.text_or("bnb_4bit_quant_type", "fp4") == "nf4" ? DType::kNf4 : DType::kFp4);
      s.quantised.bits_num = 9, s.quantised.bits_den = 2;
      if (q.flag("bnb_4bit_use_double_quant", false)) {  // 4 + 8/64 + 32/(64*256)
        s.quantised.bits_num = 4 * 16384 + 2048 + 32;
        s.quantised.bits_den = 16384;
      }
    }
  } else if (s.method == "compressed-tensors" || s.method == "modelopt") {
    const json* groups = q.find("config_groups");
    const json* weights = nullptr;
    const json* activations = nullptr;
    if (groups != nullptr && groups->is_object() && !groups->empty()) {
      const Fields group(groups->begin().value(), "", &ignored);
      weights = group.find("weights");
      activations = group.find("input_activations");
    }
    const std::string algorithm = q.text_or("quant_algo", "");
    if (weights != nullptr && weights->is_object()) {
      const Fields w(*weights, "", &ignored);
      const std::int64_t bits = w.integer_or("num_bits", 8, 2, 16);
      const std::int64_t size = w.integer("group_size", -1, 1 << 20).value_or(0);
      const bool is_float = w.text_or("type", "int") == "float";
      if (is_float) {
        s.quantised = bits == 4 ? weight_format(DType::kNvfp4) : weight_format(DType::kFp8);
      } else {
        s.quantised = size > 0 ? grouped_format(bits, size) : grouped_format(bits, 0);
      }
      if (activations != nullptr && activations->is_object()) {
        const Fields a(*activations, "", &ignored);
        const std::int64_t width = a.integer_or("num_bits", 8, 2, 16);
        if (a.text_or("type", "int") == "float") {
          spec.compute_dtype = width == 4 ? DType::kNvfp4 : DType::kFp8;
        } else if (width == 8) {
          spec.compute_dtype = DType::kInt8;
        }
      }
    } else if (algorithm == "FP8") {
      s.quantised = weight_format(DType::kFp8);
      spec.compute_dtype = DType::kFp8;
    } else if (algorithm == "NVFP4") {
      s.quantised = weight_format(DType::kNvfp4);
      spec.compute_dtype = DType::kNvfp4;
    } else {
      s.known = false;
    }
  } else {
    s.known = false;
  }
  const json* skipped = q.find("modules_to_not_convert|ignore|ignored_layers|llm_int8_skip_modules");
  if (excludes(skipped, "self_attn")) s.attention = false;
  if (excludes(skipped, "mlp") && s.method != "mxfp4" && !excludes(skipped, "mlp.gate")) s.mlp = s.experts = false;
  if (ignored) s.known = false;
}

}  // namespace mfu
