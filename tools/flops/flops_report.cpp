#include "tools/flops/flops_report.h"
#include "core/families/architecture_json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

/// FLOP of the kernel that the call names.
Result<KernelFlop> kernel_of(const FlopsCall& call, const FlopsModel* model, const FlopsJob& job,
                             const FlopsOptions& options) {
  if (call.kernel == "gemm") return gemm_flop(call.m.value_or(0), call.n.value_or(0), call.k.value_or(0));
  if (model == nullptr) return Error{"--kernel " + call.kernel + ": expected a config"};
  return kernel_flop(call.kernel, model->spec(), options, job.phase, job.sequences);
}

Json integer(Count count) { return count.fits() ? Json(count.u64()) : Json(nullptr); }

/// A double that is a whole number as an integer.
Json whole(double value) {
  if (value == std::floor(value) && std::abs(value) < 9e18) return static_cast<std::int64_t>(value);
  return value;
}

Json kernel_json(const std::string& kind, const KernelFlop& work) {
  return {
      {"kind", kind}, {"flop", integer(work.flop)}, {"launches", work.launches}, {"flop_per_pass", integer(work.all)}};
}

/// The peak, and the roofline of `flop` and `bytes` on it.
void add_peak(const AskedPeak& asked, Phase phase, std::optional<double> flop, std::optional<double> bytes,
              FlopsReport& r) {
  if (!asked.peak) return;
  const Peak& peak = *asked.peak;
  r.peak = peak;
  r.dtype_from = asked.dtype_from;
  r.best = roofline(flop, bytes, phase, peak);
  Json block;
  block["flop_per_s"] = whole(*peak.flop_per_s);
  block["bytes_per_s"] = peak.bytes_per_s ? whole(*peak.bytes_per_s) : Json(nullptr);
  block["dtype"] = name(peak.dtype);
  block["sparse"] = peak.sparse;
  block["source"] = peak.source;
  block["dtype_from"] = r.dtype_from;
  r.json["peak"] = block;
  r.json["roofline_s"] = r.best.seconds ? Json(*r.best.seconds) : Json(nullptr);
  r.json["bound"] = r.best.bound == Bound::kMemory    ? Json("memory")
                    : r.best.bound == Bound::kCompute ? Json("compute")
                                                      : Json(nullptr);
}

/// The total of the same work by every other convention that is defined for the model.
void add_other_conventions(const FlopsModel& model, const FlopsOptions& options, const CountRequest& request,
                           FlopsReport& r) {
  Json totals = Json::object();
  for (const Convention other : {Convention::kExact, Convention::kPalm, Convention::kNanogpt, Convention::kTorchtitan,
                                 Convention::kTorchtitan2026, Convention::kMegatron, Convention::kKaplan,
                                 Convention::kChinchilla, Convention::k6nd}) {
    if (other == options.convention) continue;
    FlopsOptions changed = options;
    changed.convention = other;
    const Result<FlopCount> counted = FlopsModel::make(model.spec(), changed).count_flop(request);
    if (!counted) continue;
    r.other_conventions.emplace_back(name(other), counted->total);
    totals[std::string(name(other))] = integer(counted->total);
  }
  r.json["other_conventions"] = totals;
}

Json flop_json(const FlopCount& counted, bool encoder_decoder) {
  Json parts;
  for (const auto& [part, count] : named_parts(counted)) parts[part] = integer(count);
  if (!counted.mlp_routed.is_zero()) {
    parts["mlp_parts"] = {{"mlp_dense", integer(counted.mlp_dense)},
                          {"mlp_routed", integer(counted.mlp_routed)},
                          {"mlp_shared", integer(counted.mlp_shared)}};
  }
  if (encoder_decoder) parts["encoder_forward"] = integer(counted.encoder_forward);
  if (!counted.absorbed_scores.is_zero()) {
    parts["mla_absorbed"] = {{"attn_scores", integer(counted.absorbed_scores)},
                             {"attn_av", integer(counted.absorbed_av)}};
  }
  parts["forward"] = integer(counted.forward);
  parts["backward"] = integer(counted.backward);
  parts["recompute"] = integer(counted.recompute);
  parts["total"] = integer(counted.total);
  return parts;
}

Json bytes_json(const ByteCount& moved) {
  return {{"weights_read", integer(moved.weights_read)},
          {"weights_read_min", integer(moved.weights_read_min)},
          {"weights_read_max", integer(moved.weights_read_max)},
          {"kv_read", integer(moved.kv_read)},
          {"kv_write", integer(moved.kv_write)},
          {"embedding_rows", integer(moved.embedding_rows)},
          {"kv_resident_end", integer(moved.kv_resident_end)},
          {"kv_resident_end_windowed", integer(moved.kv_resident_end_windowed)}};
}

/// Adds up; a sum of elements that are not all known is not known.
void add(ModuleCount& to, const ModuleCount& more) {
  to.params += more.params;
  to.products += more.products;
  to.attention += more.attention;
  to.convolution += more.convolution;
  to.state += more.state;
  to.outputs = to.outputs && more.outputs ? std::optional(*to.outputs + *more.outputs) : std::nullopt;
}

/// \param request without sequences: of parameters alone.
void add_modules(const FlopsModel& model, const CountRequest& request, FlopsReport& r) {
  r.modules = count_modules(model, request);
  ModuleCount text, all;
  text.name = "language model";
  all.name = "all";
  for (const ModuleCount& module : r.modules) {
    add(all, module);
    if (!module.of_image) add(text, module);
  }
  if (model.spec().vision && !model.spec().is_vision_only()) r.modules.push_back(std::move(text));
  r.modules.push_back(std::move(all));
  // Products of 8-bit operands write 16 bits.
  r.output_bytes = std::max<std::int64_t>(2, dtype_bits(model.spec().compute_dtype.value_or(DType::kBf16)) / 8);
  Json list = Json::array();
  for (const ModuleCount& m : r.modules) {
    Json one = {{"module", m.name}};
    if (!m.kind.empty()) one["kind"] = m.kind;
    if (m.layers > 0) one["layers"] = m.layers;
    one["params"] = integer(m.params);
    if (!request.sequences.empty()) {
      one["flop"] = integer(m.flop());
      one["operators"] = {{"products", integer(m.products)},
                          {"attention", integer(m.attention)},
                          {"convolution", integer(m.convolution)},
                          {"state", integer(m.state)}};
      one["outputs"] = m.outputs ? integer(*m.outputs) : Json(nullptr);
      one["output_bytes"] = m.outputs ? integer(*m.outputs * r.output_bytes) : Json(nullptr);
    }
    list.push_back(one);
  }
  r.json["modules"] = list;
}

}  // namespace

std::vector<std::pair<const char*, Count>> named_parts(const FlopCount& c) {
  std::vector<std::pair<const char*, Count>> parts = {
      {"qkv", c.parts.qkv},         {"attn_scores", c.parts.attn_scores},
      {"attn_av", c.parts.attn_av}, {"o_proj", c.parts.o_proj},
      {"mlp", c.parts.mlp},         {"router", c.parts.router},
      {"logits", c.parts.logits}};
  const std::pair<const char*, Count> rare[] = {
      {"cross_qkv", c.parts.cross_qkv}, {"cross_scores", c.parts.cross_scores},
      {"cross_av", c.parts.cross_av},   {"cross_o_proj", c.parts.cross_o_proj},
      {"vision", c.parts.vision},       {"other", c.parts.other}};
  for (const auto& part : rare)
    if (!part.second.is_zero()) parts.push_back(part);
  return parts;
}

std::string attention_text(const Architecture& model, AttentionMode mode) {
  bool causal = false, seen_whole = model.is_encoder_decoder();
  for (const LayerSpec& layer : model.layers) {
    const MixerKind kind = layer.mixer.kind;
    if (kind != MixerKind::kAttention && kind != MixerKind::kLatent) continue;
    (layer.mixer.causal ? causal : seen_whole) = true;
  }
  if (model.is_vision_only() && model.vision->layers > 0) seen_whole = true;
  if (model.flat_params) return "not counted";
  if (!causal) return seen_whole ? "bidirectional" : "none";
  return std::string(name(mode)) + (model.is_encoder_decoder() ? ", bidirectional in the encoder" : "");
}

Result<Config> config_of(const FlopsCall& call) {
  const auto environment = [](const char* variable) -> const char* { return std::getenv(variable); };
  return load_config_file(call.config.empty() ? "{}" : call.config, environment, config_overrides(call));
}

Result<AskedPeak> peak_of(const FlopsCall& call, const Config& config) {
  AskedPeak asked;
  if (call.gpu.empty()) return asked;
  const OperandDType operands = operand_dtype(config.peak.dtype, config.model ? config.model->dtype() : std::nullopt);
  asked.dtype_from = operands.source == "model"    ? "the model config"
                     : operands.source != "config" ? "default"
                     : call.dtype.empty()          ? "peak.dtype"
                                                   : "--dtype";
  const Result<Peak> peak = find_peak_of_name(call.gpu, operands.dtype, config.peak);
  if (!peak) return Error{"--gpu: " + peak.error().message + "; or set MFU_PEAK_TFLOPS and MFU_PEAK_GBPS"};
  asked.peak = *peak;
  return asked;
}

Result<FlopsReport> make_report(const FlopsCall& call, const Config& config, const FlopsJob& job,
                                const AskedPeak& asked) {
  FlopsReport r;
  const std::optional<FlopsModel>& model = config.model;
  const FlopsOptions options = model ? model->options() : FlopsOptions{};
  if (model) {
    r.json["model"] = Json::parse(model_json(model->spec()));
    r.json["shape"] = job.shape;
  } else {
    r.json["model"] = Json(nullptr);
    r.json["shape"] = {{"m", call.m.value_or(0)}, {"n", call.n.value_or(0)}, {"k", call.k.value_or(0)}};
  }
  r.convention = model ? model->convention() : "exact";
  r.attention = model ? attention_text(model->spec(), options.attention) : std::string(name(options.attention));
  const bool all_logits =
      options.logits == LogitsMode::kAll ||
      (options.logits == LogitsMode::kByPhase && (job.phase == Phase::kTrain || (model && model->spec().is_encoder)));
  r.logits = all_logits ? "all" : "last";
  r.json["convention"] = name(options.convention);
  r.formula = version_of(options.convention);
  if (!r.formula.empty()) r.json["convention_of"] = r.formula;
  r.json["attention"] = name(options.attention);
  r.json["attention_counted"] = r.attention;
  r.json["logits"] = r.logits;

  std::optional<double> flop, bytes;
  if (!call.kernel.empty()) {
    Result<KernelFlop> work = kernel_of(call, model ? &*model : nullptr, job, options);
    if (!work) return work.error();
    r.kernel = *work;
    r.json["kernel"] = kernel_json(call.kernel, *work);
    r.json["flop"] = {{"total", integer(work->flop)}};
    flop = work->flop.to_double();
    // One kernel's bytes depend on its fusion: the bound shown is that of its arithmetic alone.
    add_peak(asked, Phase::kTrain, flop, bytes, r);
    return r;
  }
  const CountRequest request = job.request(options);
  if (!call.by.empty()) add_modules(*model, request, r);
  if (!job.has_shape) {
    r.json["flop"] = nullptr;
    r.json["bytes"] = nullptr;
    return r;
  }
  Result<FlopCount> counted = model->count_flop(request);
  if (!counted) return counted.error();
  r.flop = *counted;
  r.json["flop"] = flop_json(*counted, model->spec().is_encoder_decoder());
  add_other_conventions(*model, options, request, r);
  r.json["tokens"] = integer(counted->tokens);
  flop = counted->total.to_double();
  r.share = share_text(options.parallel, model->spec());
  if (!r.share.empty()) {
    const ParallelConfig& p = options.parallel;
    r.flop_of_rank = *flop / p.world();
    r.json["parallel"] = {{"tp", p.tp},
                          {"pp", p.pp},
                          {"cp", p.cp},
                          {"ep", p.ep},
                          {"dp", p.dp},
                          {"this_rank", r.share},
                          {"flop_of_rank", whole(r.flop_of_rank)}};
  }
  if (job.phase == Phase::kTrain) {
    r.json["bytes"] = nullptr;  // no agreed minimum
  } else {
    Result<ByteCount> moved = model->count_bytes(request);
    if (moved) {
      r.bytes = *moved;
      r.json["bytes"] = bytes_json(*moved);
      bytes = moved->moved().to_double();
    } else {
      r.json["bytes"] = nullptr;
      r.bytes_missing = moved.error().message;
    }
  }
  add_peak(asked, job.phase, flop, bytes, r);
  return r;
}

}  // namespace mfu
