#include "core/families/weight_storage.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/families/read_architecture.h"

namespace mfu {
namespace {

using nlohmann::json;

/// Weights of `bits`, and `more` bits beside each group of `group`. \param group 0: none
WeightFormat beside_groups(const std::string& name, std::int64_t bits, std::int64_t more, std::int64_t group) {
  return group > 0 ? WeightFormat{name, bits * group + more, group} : WeightFormat{name, bits, 1};
}

/// Integer weights in groups of `group` with a 16-bit scale and a zero point of the weights' own width.
WeightFormat grouped_format(std::int64_t bits, std::int64_t group) {
  return beside_groups("int" + std::to_string(bits), bits, 16 + bits, group);
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

/// The weights that a `quantization_config` quantises.
struct Quantised {
  std::optional<WeightFormat> weights;  ///< none: not understood
  std::optional<DType> compute;         ///< of the operands, where activations are quantised too
};

/// Of 4, 6 or 8 bits, in floating point or not. \param group 0: none
std::optional<WeightFormat> float_weights(std::int64_t bits, std::int64_t group) {
  if (bits == 4) return weight_format(group == 32 ? DType::kMxfp4 : DType::kNvfp4);
  if (bits == 6) return beside_groups("fp6", 6, group > 0 ? 8 : 0, group);
  if (bits == 8) return group == 32 ? beside_groups("mxfp8", 8, 8, 32) : weight_format(DType::kFp8);
  return std::nullopt;
}

std::optional<DType> float_operands(std::int64_t bits, std::int64_t group) {
  if (bits == 4) return group == 32 ? DType::kMxfp4 : DType::kNvfp4;
  return bits == 8 ? std::optional(DType::kFp8) : std::nullopt;
}

/// One FP32 scale per block, if it has blocks.
Quantised read_fp8(const Fields& q) {
  Quantised out{weight_format(DType::kFp8), std::nullopt};
  const json* block = q.find("weight_block_size");
  if (block != nullptr && block->is_array() && block->size() == 2 && (*block)[0].is_number_integer() &&
      (*block)[1].is_number_integer()) {
    const std::int64_t rows = (*block)[0].get<std::int64_t>(), columns = (*block)[1].get<std::int64_t>();
    if (rows > 0 && columns > 0 && rows <= 65536 && columns <= 65536)
      out.weights = beside_groups(out.weights->name, 8, 32, rows * columns);
  }
  if (q.text_or("activation_scheme", "dynamic") != "none") out.compute = DType::kFp8;
  return out;
}

Quantised read_mxfp4(const Fields& /*q*/) { return {weight_format(DType::kMxfp4), std::nullopt}; }

/// AWQ and GPTQ.
Quantised read_integers(const Fields& q) {
  const std::int64_t bits = q.integer_or("bits|w_bit", 4, 2, 8);
  return {grouped_format(bits, q.integer("group_size|q_group_size", -1, 1 << 20).value_or(128)), std::nullopt};
}

Quantised read_bitsandbytes(const Fields& q) {
  if (q.flag("load_in_8bit|_load_in_8bit", false)) return {weight_format(DType::kInt8), std::nullopt};
  WeightFormat f = weight_format(q.text_or("bnb_4bit_quant_type", "fp4") == "nf4" ? DType::kNf4 : DType::kFp4);
  f.bits_num = 9, f.bits_den = 2;
  if (q.flag("bnb_4bit_use_double_quant", false))
    f.bits_num = 4 * 16384 + 2048 + 32, f.bits_den = 16384;  // 4 + 8/64 + ...
  return {f, std::nullopt};
}

/// compressed-tensors and NVIDIA's ModelOpt.
Quantised read_config_groups(const Fields& q) {
  Quantised out;
  const json* groups = q.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty() || !groups->begin()->is_object()) {
    const std::string algorithm = q.text_or("quant_algo", "");
    if (algorithm == "FP8") out = {weight_format(DType::kFp8), DType::kFp8};
    if (algorithm == "NVFP4") out = {weight_format(DType::kNvfp4), DType::kNvfp4};
    return out;
  }
  std::optional<Error> ignored;
  const Fields group(groups->begin().value(), "", &ignored);
  const Fields w = group.child("weights"), a = group.child("input_activations");
  if (w.object().empty()) return out;
  const std::int64_t bits = w.integer_or("num_bits", 8, 2, 16), size = w.integer("group_size", -1, 1 << 20).value_or(0);
  const bool is_float = w.text_or("type", "int") == "float";
  out.weights = is_float ? float_weights(bits, size) : grouped_format(bits, size);
  if (a.object().empty()) return out;
  const std::int64_t width = a.integer_or("num_bits", 8, 2, 16);
  if (a.text_or("type", "int") == "float")
    out.compute = float_operands(std::max(bits, width), a.integer("group_size", -1, 1 << 20).value_or(0));
  else if (width == 8)
    out.compute = DType::kInt8;
  return out;
}

/// torchao: `quant_type` is the name of a function (int4_weight_only), or the config of one
/// (Int8DynamicActivationInt4WeightConfig) with its values. Scale and zero of a group of int4 have 16 bits each.
Quantised read_torchao(const Fields& q) {
  const json* type = q.find("quant_type");
  const bool is_text = type != nullptr && type->is_string();
  const Fields config = is_text ? q : q.child("quant_type").child("default");
  const Fields values = is_text ? q.child("quant_type_kwargs") : config.child("_data");
  std::string name;
  for (const char c : is_text ? type->get<std::string>() : config.text_or("_type", ""))
    if (c != '_') name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const auto has = [&name](std::string_view word) { return name.find(word) != name.npos; };
  const bool activations = has("dynamicactivation");
  Quantised out;
  if (has("int4weight")) {
    out.weights =
        beside_groups("int4", 4, 32, values.integer("group_size", -1, 1 << 20).value_or(activations ? 32 : 128));
  } else if (has("int8weight")) {
    out.weights = weight_format(DType::kInt8);
  } else if (has("float8weight")) {
    out.weights = weight_format(DType::kFp8);
  } else if (has("nvfp4")) {
    return {weight_format(DType::kNvfp4), has("weightonly") ? std::nullopt : std::optional(DType::kNvfp4)};
  }
  if (name.starts_with("int8dynamicactivation")) out.compute = DType::kInt8;
  if (name.starts_with("float8dynamicactivation")) out.compute = DType::kFp8;
  return out;
}

/// AMD's Quark: `fp8_e4m3`, `fp4`, `fp6_e3m2`, `int4`, `uint4`, ...
std::int64_t quark_bits(const std::string& dtype) {
  const std::size_t at = dtype.find_first_of("0123456789");
  return at == dtype.npos ? 0 : dtype[at] - '0';
}
Quantised read_quark(const Fields& q) {
  const Fields all = q.child("global_quant_config"), w = all.child("weight"), a = all.child("input_tensors");
  const std::string dtype = w.text_or("dtype", "");
  const std::int64_t bits = quark_bits(dtype), group = w.integer("group_size", -1, 1 << 20).value_or(0);
  Quantised out;
  const json* layers = q.find("layer_quant_config");
  for (const auto& entry : layers != nullptr && layers->is_object() ? *layers : json::object()) {
    std::optional<Error> ignored;  // layers of another width: the bytes are not known
    if (entry.is_object() && Fields(entry, "", &ignored).child("weight").text_or("dtype", dtype) != dtype) return out;
  }
  const bool is_float = dtype.starts_with("fp");
  if (bits >= 2) out.weights = is_float ? float_weights(bits, group) : grouped_format(bits, group);
  const std::string operands = a.text_or("dtype", "");
  if (operands.starts_with("fp") && is_float)
    out.compute =
        float_operands(std::max(bits, quark_bits(operands)), a.integer("group_size", -1, 1 << 20).value_or(0));
  else if (operands == "int8")
    out.compute = DType::kInt8;
  return out;
}

/// Intel's AutoRound: integers in groups, or `data_type` mx_fp or nv_fp.
Quantised read_auto_round(const Fields& q) {
  const std::int64_t bits = q.integer_or("bits", 4, 2, 16), group = q.integer("group_size", -1, 1 << 20).value_or(128);
  if (q.text_or("data_type", "int").find("fp") == std::string::npos) return {grouped_format(bits, group), std::nullopt};
  Quantised out{float_weights(bits, group), std::nullopt};
  if (const std::int64_t operands = q.integer_or("act_bits", 16, 2, 16); operands <= 8)
    out.compute = float_operands(std::max(bits, operands), group);
  return out;
}

/// HQQ: scale and zero of a group have 16 bits each, or 8 where they are quantised too.
Quantised read_hqq(const Fields& q) {
  const Fields config = q.child("quant_config"), w = config.child("weight_quant_params");
  if (w.object().empty()) return {};  // one config for each kind of layer
  const auto bits_of = [&config](const char* key) { return config.child(key).object().empty() ? 16 : 8; };
  const std::int64_t bits = w.integer_or("nbits", 4, 1, 8);
  return {
      beside_groups("int" + std::to_string(bits), bits, bits_of("scale_quant_params") + bits_of("zero_quant_params"),
                    w.integer("group_size", -1, 1 << 20).value_or(64)),
      std::nullopt};
}

constexpr std::pair<std::string_view, Quantised (*)(const Fields&)> kMethods[] = {
    {"mxfp4", read_mxfp4},
    {"fp8", read_fp8},
    {"fbgemm_fp8", read_fp8},
    {"awq", read_integers},
    {"gptq", read_integers},
    {"bitsandbytes", read_bitsandbytes},
    {"compressed-tensors", read_config_groups},
    {"modelopt", read_config_groups},
    {"torchao", read_torchao},
    {"quark", read_quark},
    {"auto-round", read_auto_round},
    {"intel/auto-round", read_auto_round},
    {"hqq", read_hqq},
};

}  // namespace

WeightFormat weight_format(DType dtype) {
  const auto [bits, elements] = stored_bits(dtype);
  return {std::string(name(dtype)), bits, elements};
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
  s.plain = weight_format(spec.compute_dtype.value_or(DType::kBf16));
  const json* quantization = f.find("quantization_config");
  if (quantization == nullptr) quantization = f.child("text_config").find("quantization_config");
  if (quantization == nullptr || !quantization->is_object()) return;
  std::optional<Error> ignored;  // a strange field here costs the bytes, not the FLOP
  const Fields q(*quantization, f.place() + "quantization_config.", &ignored);
  s.method = q.text_or("quant_method", q.text_or("quant_algo", ""));
  s.attention = s.mlp = s.experts = true;
  if (s.method == "mxfp4") s.attention = s.mlp = false;  // routed experts only (gpt-oss)
  Quantised quantised;
  for (const auto& [method, read] : kMethods)
    if (method == s.method) quantised = read(q);
  if (quantised.compute) spec.compute_dtype = quantised.compute;
  s.known = quantised.weights.has_value();
  if (quantised.weights) s.quantised = *quantised.weights;
  const json* skipped =
      q.find("modules_to_not_convert|ignore|ignored_layers|llm_int8_skip_modules|exclude|skip_modules");
  if (excludes(skipped, "self_attn")) s.attention = false;
  if (excludes(skipped, "mlp") && s.method != "mxfp4" && !excludes(skipped, "mlp.gate")) s.mlp = s.experts = false;
  if (ignored) s.known = false;
}

}  // namespace mfu
