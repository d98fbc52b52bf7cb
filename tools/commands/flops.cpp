// `mfu flops`: FLOP, bytes, parameters and the roofline of a model and a shape; as a table, Markdown or JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/account/metrics.h"
#include "core/config/config.h"
#include "core/model/flops_model.h"
#include "core/model/kernel_flop.h"
#include "core/model/read_architecture.h"
#include "core/peak/peak.h"
#include "core/peak/peak_table.h"
#include "tools/commands/commands.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

/// The command line as it came in.
struct FlopsCall {
  std::string config;
  std::string phase, attention, logits, convention, gpu, dtype, weight_dtype, kv_dtype, kernel, encoder_runs, recompute,
      context_mode;
  std::optional<std::int64_t> batch, seq_len, context, new_tokens, grad_accum, encoder_len, m, n, k;
  std::vector<std::int64_t> seq_lens, contexts;
  std::vector<std::string> images;
  std::string as;
  bool sparse = false, json = false, markdown = false, schema = false, list = false;
};

/// What is to be counted, worked out from the call and the config's workload.
struct Job {
  Phase phase = Phase::kTrain;
  std::vector<SequenceGroup> sequences;
  std::int64_t passes = 1;
  std::int64_t encoder_len = 0;
  bool encoder_runs = true;
  bool has_shape = false;
  Json shape = Json::object();

  [[nodiscard]] CountRequest request(const FlopsOptions& options) const {
    CountRequest r;
    r.phase = phase;
    r.sequences = sequences;
    r.passes = passes;
    r.encoder_len = encoder_len;
    r.encoder_runs = encoder_runs;
    r.images = options.images;
    return r;
  }
};

std::string_view phase_name(Phase phase) {
  return phase == Phase::kTrain ? "train" : phase == Phase::kPrefill ? "prefill" : "decode";
}

Result<void> read_options(const FlopsCall& call, FlopsOptions& o) {
  if (!call.attention.empty()) o.attention = *parse_attention_mode(call.attention);
  if (call.convention == "exact-full") {
    o.convention = Convention::kExact;
    o.attention = AttentionMode::kFull;
  } else if (!call.convention.empty()) {
    const auto convention = parse_convention(call.convention);
    if (!convention) {
      return Error{
          "--convention: expected exact, exact-full, palm, nanogpt, torchtitan, megatron, kaplan, chinchilla or 6nd, "
          "got \"" +
          call.convention + "\""};
    }
    o.convention = *convention;
  }
  if (!call.logits.empty()) o.logits = call.logits == "all" ? LogitsMode::kAll : LogitsMode::kLast;
  if (call.grad_accum) o.grad_accum = *call.grad_accum;
  if (call.recompute == "none") o.recompute = Recompute::kNone;
  if (call.recompute == "full") o.recompute = Recompute::kFull;
  if (call.recompute == "selective") o.recompute = Recompute::kSelective;
  if (call.recompute == "flash") o.recompute = Recompute::kFlash;
  if (call.context_mode == "fixed") o.context_mode = ContextMode::kFixed;
  if (call.context_mode == "max") o.context_mode = ContextMode::kMax;
  const auto format = [](const std::string& option, const std::string& text) -> Result<DType> {
    if (const auto dtype = parse_dtype(text)) return *dtype;
    return Error{option + ": expected a number format such as bf16, fp8, int4 or mxfp4, got \"" + text + "\""};
  };
  if (!call.weight_dtype.empty()) {
    const Result<DType> dtype = format("--weight-dtype", call.weight_dtype);
    if (!dtype) return dtype.error();
    o.weight_format = weight_format(*dtype);
  }
  if (!call.kv_dtype.empty()) {
    const Result<DType> dtype = format("--kv-dtype", call.kv_dtype);
    if (!dtype) return dtype.error();
    o.kv_dtype = *dtype;
  }
  if (!call.images.empty()) o.images.clear();
  for (const std::string& image : call.images) {
    int height = 0, width = 0, used = 0;
    if (std::sscanf(image.c_str(), "%d%*1[xX]%d%n", &height, &width, &used) != 2 ||
        static_cast<std::size_t>(used) != image.size() || height <= 0 || width <= 0 || height > (1 << 20) ||
        width > (1 << 20)) {
      return Error{"--images: expected HEIGHTxWIDTH in pixels, got \"" + image + "\""};
    }
    o.images.emplace_back(height, width);
  }
  return {};
}

Result<Job> make_job(const FlopsCall& call, const Config& config, const FlopsModel& model,
                     const FlopsOptions& options) {
  Job job;
  const Architecture& spec = model.spec();
  const Shape& w = config.workload.shape;
  job.phase = config.workload.phase.value_or(Phase::kTrain);
  if (call.phase == "train") job.phase = Phase::kTrain;
  if (call.phase == "prefill") job.phase = Phase::kPrefill;
  if (call.phase == "decode") job.phase = Phase::kDecode;
  if (job.phase != Phase::kTrain && job.phase != Phase::kPrefill && job.phase != Phase::kDecode) {
    return Error{"--phase: expected train, prefill or decode"};
  }
  const bool decode = job.phase == Phase::kDecode;
  const auto either = [](const std::optional<std::int64_t>& a, const std::optional<std::int64_t>& b) {
    return a ? a : b;
  };
  const std::int64_t batch = either(call.batch, w.batch).value_or(1);
  std::optional<std::int64_t> seq_len = either(call.seq_len, w.seq_len);
  if (!seq_len && call.seq_lens.empty() && w.tokens && !decode && batch > 0 && *w.tokens % batch == 0)
    seq_len = *w.tokens / batch;
  const std::optional<std::int64_t> context = either(call.context, w.context);
  if (spec.is_encoder_decoder() || spec.reads_context()) {
    const auto encoder_len = either(call.encoder_len, w.encoder_len);
    job.encoder_runs = call.encoder_runs.empty() ? !decode : call.encoder_runs == "yes";
    if (encoder_len) job.encoder_len = *encoder_len;
    if (!encoder_len && (seq_len || decode || call.batch || !call.seq_lens.empty())) {
      return Error{"--encoder-len: expected the encoder's tokens per sequence for model_type " + spec.family +
                   (spec.reads_context() ? " (tokens of the text)" : "")};
    }
    if (!seq_len && encoder_len && job.phase == Phase::kPrefill) seq_len = 1;  // the first decoder token
  } else if (call.encoder_len || !call.encoder_runs.empty()) {
    return Error{"--encoder-len: model_type " + spec.family + " has no encoder"};
  }

  job.shape["phase"] = phase_name(job.phase);
  if (!call.seq_lens.empty() || !call.contexts.empty()) {
    const std::size_t count = std::max(call.seq_lens.size(), call.contexts.size());
    if (!call.seq_lens.empty() && !call.contexts.empty() && call.seq_lens.size() != call.contexts.size()) {
      return Error{fmt::format("--contexts: expected {} values, one per --seq-lens, got {}", call.seq_lens.size(),
                               call.contexts.size())};
    }
    if (call.seq_lens.empty() && !seq_len && !decode)
      return Error{"--seq-lens: expected new tokens of each sequence beside --contexts"};
    if (call.contexts.empty() && decode && !context)
      return Error{"--contexts: expected the cached tokens of each sequence for decode"};
    Json lens = Json::array(), contexts = Json::array();
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t fed = call.seq_lens.empty() ? seq_len.value_or(1) : call.seq_lens[i];
      const std::int64_t past = call.contexts.empty() ? context.value_or(0) : call.contexts[i];
      job.sequences.push_back({call.batch.value_or(1), past, fed});
      lens.push_back(fed);
      contexts.push_back(past);
    }
    job.shape["batch"] = static_cast<std::int64_t>(count) * call.batch.value_or(1);
    job.shape["seq_lens"] = lens;
    job.shape["contexts"] = contexts;
  } else if (spec.is_vision_only()) {
    job.sequences.push_back({batch, 0, 0});
    job.shape["batch"] = batch;
  } else if (decode) {
    bool has_cache = false;
    for (const LayerSpec& layer : spec.layers) {
      has_cache |= layer.mixer.kind == MixerKind::kAttention || layer.mixer.kind == MixerKind::kLatent;
    }
    if (!context && has_cache) return Error{"--context: expected the tokens already in the cache for decode"};
    job.sequences.push_back({batch, context.value_or(0), seq_len.value_or(1)});
    job.shape["batch"] = batch;
    job.shape["seq_len"] = seq_len.value_or(1);
    job.shape["context"] = context.value_or(0);
  } else if (seq_len) {
    if (job.phase == Phase::kTrain && context.value_or(0) != 0)
      return Error{"--context: a training step has no cached tokens"};
    job.sequences.push_back({batch, context.value_or(0), *seq_len});
    job.shape["batch"] = batch;
    job.shape["seq_len"] = *seq_len;
    job.shape["context"] = context.value_or(0);
  } else if (!call.phase.empty() || call.batch) {
    return Error{"--seq-len: expected new tokens per sequence for " + std::string(phase_name(job.phase))};
  }
  job.has_shape = !job.sequences.empty();
  if (decode) {
    job.passes = either(call.new_tokens, w.new_tokens).value_or(1);
    job.shape["new_tokens"] = job.passes;
  }
  if (job.phase == Phase::kTrain) job.shape["grad_accum"] = options.grad_accum;
  if (spec.is_encoder_decoder() || spec.reads_context()) {
    job.shape["encoder_len"] = job.encoder_len;
    job.shape["encoder_runs"] = job.encoder_runs;
  }
  if (!options.images.empty()) {
    Json images = Json::array();
    for (const auto& [height, width] : options.images) images.push_back(fmt::format("{}x{}", height, width));
    job.shape["images"] = images;
  }
  for (const SequenceGroup& s : job.sequences) {
    if (s.count < 0 || s.past < 0 || s.fed < 0) return Error{"the shape: expected values >= 0"};
  }
  return job;
}

/// FLOP of the kernel that the call names.
Result<KernelFlop> kernel_of(const FlopsCall& call, const FlopsModel* model, const Job& job,
                             const FlopsOptions& options) {
  if (call.kernel == "gemm") {
    if (!call.m || !call.n || !call.k) return Error{"--kernel gemm: expected --m, --n and --k"};
    return gemm_flop(*call.m, *call.n, *call.k);
  }
  if (model == nullptr || !job.has_shape) return Error{"--kernel " + call.kernel + ": expected a config and a shape"};
  return kernel_flop(call.kernel, model->spec(), options, job.phase, job.sequences);
}

Json integer(Count count) { return count.fits() ? Json(count.u64()) : Json(nullptr); }

/// A double that is a whole number as an integer.
Json whole(double value) {
  if (value == std::floor(value) && std::abs(value) < 9e18) return static_cast<std::int64_t>(value);
  return value;
}

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
  for (const auto& part : rare) {
    if (!part.second.is_zero()) parts.push_back(part);
  }
  return parts;
}

/// Everything the three outputs show.
struct Report {
  Json json;
  std::optional<FlopCount> flop;
  std::optional<ByteCount> bytes;
  std::string bytes_missing;
  std::optional<Peak> peak;
  std::string dtype_from;
  Roofline best;
  std::optional<KernelFlop> kernel;
  std::string convention, attention, logits;
};

std::string with_unit(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
  int step = 0;
  while (std::abs(value) >= 1000 && step < 7) value /= 1000, ++step;
  return fmt::format("{:.4g} {}{}", value, kPrefixes[step], unit);
}

std::string grouped(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

/// Rows of (what, exact, readable, share); the same for the table and for Markdown.
struct Row {
  std::string what, exact, readable, share;
};

std::vector<Row> rows_of(const Report& r) {
  std::vector<Row> rows;
  if (r.flop) {
    const double forward = r.flop->forward.to_double();
    const auto add = [&](const std::string& what, Count count, bool share) {
      rows.push_back({what, grouped(count.u64()), with_unit(count.to_double(), "FLOP"),
                      share && forward > 0 ? fmt::format("{:.2f} %", 100 * count.to_double() / forward) : ""});
    };
    for (const auto& [what, count] : named_parts(*r.flop)) add(what, count, true);
    add("forward", r.flop->forward, false);
    if (!r.flop->backward.is_zero()) add("backward", r.flop->backward, false);
    if (!r.flop->recompute.is_zero()) add("recompute (HFU only)", r.flop->recompute, false);
    add("total (" + r.convention + ")", r.flop->total, false);
  }
  if (r.bytes) {
    const auto add = [&](const char* what, Count count) {
      rows.push_back({what, grouped(count.u64()), with_unit(count.to_double(), "B"), ""});
    };
    add("weights read", r.bytes->weights_read);
    if (!(r.bytes->weights_read_min == r.bytes->weights_read_max)) {
      add("  at least", r.bytes->weights_read_min);
      add("  at most", r.bytes->weights_read_max);
    }
    add("KV read", r.bytes->kv_read);
    add("KV written", r.bytes->kv_write);
  }
  return rows;
}

std::string headline(const Report& r) {
  const Json& p = r.json["model"]["params"];
  std::string text = fmt::format("{}: {} parameters", r.json["model"]["family"].get<std::string>(),
                                 p["total"].is_null() ? "?" : with_unit(p["total"].get<double>(), ""));
  if (p["active"] != p["total"] && !p["active"].is_null())
    text += fmt::format(", {} active", with_unit(p["active"].get<double>(), ""));
  text += fmt::format("; counting {}, attention {}, logits {}", r.convention, r.attention, r.logits);
  std::string shape;
  for (const auto& item : r.json["shape"].items()) {
    shape += fmt::format("{}{}={}", shape.empty() ? "" : " ", item.key(),
                         item.value().is_string() ? item.value().get<std::string>() : item.value().dump());
  }
  return text + "\n" + shape;
}

std::string roofline_text(const Report& r) {
  if (!r.peak) return "";
  std::string text = "peak: ";
  text += r.peak->flop_per_s ? with_unit(*r.peak->flop_per_s, "FLOP/s") : std::string("unknown");
  text += fmt::format(" {}{}", name(r.peak->dtype), r.peak->sparse ? " 2:4 sparse" : "");
  if (r.peak->bytes_per_s) text += ", " + with_unit(*r.peak->bytes_per_s, "B/s");
  text += " (" + r.peak->source + "; dtype from " + r.dtype_from + ")\n";
  if (r.best.seconds) {
    text += fmt::format("roofline: {}, {}-bound", time_text(*r.best.seconds),
                        r.best.bound == Bound::kMemory ? "memory" : "compute");
    if (r.flop && r.best.bound == Bound::kMemory && *r.best.seconds > 0) {
      text += fmt::format("; MFU at that time {:.2f} %",
                          100 * r.flop->total.to_double() / *r.peak->flop_per_s / *r.best.seconds);
    }
    text += "\n";
  }
  return text;
}

/// One line for each thing that the reader took for granted.
std::string assumptions(const Report& r) {
  std::string text;
  if (r.json.contains("model") && r.json["model"].is_object() && r.json["model"].contains("assumed")) {
    for (const Json& one : r.json["model"]["assumed"]) text += "assumed: " + one.get<std::string>() + "\n";
  }
  return text;
}

void print_table(const Report& r) {
  fmt::print("{}\n{}\n", headline(r), assumptions(r));
  if (r.kernel) {
    const Json& kernel = r.json["kernel"];
    fmt::print("kernel {}: {} FLOP per launch ({}), {} launches of this size per pass, {} FLOP in all\n",
               kernel["kind"].get<std::string>(), grouped(r.kernel->flop.u64()),
               with_unit(r.kernel->flop.to_double(), "FLOP"), r.kernel->launches, grouped(r.kernel->all.u64()));
  } else {
    for (const Row& row : rows_of(r))
      fmt::print("{:<24}{:>32}{:>16}{:>10}\n", row.what, row.exact, row.readable, row.share);
    if (!r.bytes_missing.empty()) fmt::print("{}\n", r.bytes_missing);
  }
  const std::string tail = roofline_text(r);
  if (!tail.empty()) fmt::print("\n{}", tail);
}

void print_markdown(const Report& r) {
  if (const std::string assumed = assumptions(r); !assumed.empty()) fmt::print("{}\n", assumed);
  std::string head = headline(r);
  head.replace(head.find('\n'), 1, "  \n`");
  fmt::print("{}`\n\n| component | exact | readable | of forward |\n|---|---:|---:|---:|\n", head);
  for (const Row& row : rows_of(r)) fmt::print("| {} | {} | {} | {} |\n", row.what, row.exact, row.readable, row.share);
  const std::string tail = roofline_text(r);
  if (!tail.empty()) fmt::print("\n{}", tail);
}

Json kernel_json(const std::string& kind, const KernelFlop& work) {
  return {
      {"kind", kind}, {"flop", integer(work.flop)}, {"launches", work.launches}, {"flop_per_pass", integer(work.all)}};
}

/// Peak of the named GPU, and the roofline of `flop` and `bytes` on it.
Result<void> add_peak(const FlopsCall& call, const Config& config, std::optional<DType> model_dtype, Phase phase,
                      std::optional<double> flop, std::optional<double> bytes, Report& r) {
  PeakOptions peak_config = config.peak;
  peak_config.sparse = peak_config.sparse || call.sparse;
  DType dtype = DType::kBf16;
  r.dtype_from = "default";
  if (!call.dtype.empty()) {
    const auto parsed = parse_dtype(call.dtype);
    if (!parsed)
      return Error{"--dtype: expected a number format such as bf16, fp16, fp8 or tf32, got \"" + call.dtype + "\""};
    dtype = *parsed;
    r.dtype_from = "--dtype";
  } else if (config.peak.dtype) {
    dtype = *config.peak.dtype;
    r.dtype_from = "peak.dtype";
  } else if (model_dtype) {
    dtype = *model_dtype;
    r.dtype_from = "the model config";
  }
  DeviceFacts facts;
  facts.name = call.gpu;
  const Peak peak = find_peak(facts, dtype, peak_config);
  if (!peak.flop_per_s) {
    return Error{"--gpu: expected a known GPU, got \"" + call.gpu + "\"; nearest: " + nearest_peak_rows(call.gpu) +
                 "; or set MFU_PEAK_TFLOPS and MFU_PEAK_GBPS"};
  }
  r.peak = peak;
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
  return {};
}

/// The environment, with --as as one more override of the config.
Getenv environment_of(const FlopsCall& call) {
  if (call.as.empty()) return [](const char* variable) -> const char* { return std::getenv(variable); };
  const char* set = std::getenv("MFU_SET");
  std::string overrides = set != nullptr ? std::string(set) + "," : std::string();
  overrides += "model.model_type=" + call.as;
  return [overrides](const char* variable) -> const char* {
    return std::string_view(variable) == "MFU_SET" ? overrides.c_str() : std::getenv(variable);
  };
}

/// `mfu flops --list`: the model types, as many to a line as fit.
void print_types() {
  std::vector<std::string_view> types = known_model_types();
  std::sort(types.begin(), types.end());
  std::string line;
  for (std::string_view type : types) {
    if (line.size() + type.size() + 2 > 100) {
      fmt::print("{}\n", line);
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + std::string(type);
  }
  fmt::print("{}\n{} model types; others by the usual key names of decoders, marked as assumed\n", line, types.size());
}

Result<Report> make_report(const FlopsCall& call) {
  Report r;
  const Getenv environment = environment_of(call);
  Config config;
  FlopsOptions options;
  std::optional<FlopsModel> model;
  Job job;
  if (!call.config.empty()) {
    Result<Config> loaded = load_config_file(call.config, environment);
    if (!loaded) return loaded.error();
    config = std::move(*loaded);
    for (const std::string& line : config.warnings) fmt::print(stderr, "mfu flops: {}\n", line);
    if (!config.model) return Error{call.config + ": model: expected a model, but the config names none"};
    options = config.model->options();
    if (Result<void> read = read_options(call, options); !read) return read.error();
    model = FlopsModel::make(config.model->spec(), options);
    Result<Job> made = make_job(call, config, *model, options);
    if (!made) return made.error();
    job = std::move(*made);
    r.json["model"] = Json::parse(model->model_json());
    r.json["shape"] = job.shape;
  } else if (call.kernel != "gemm") {
    return Error{"CONFIG: expected a config file, a folder, a model id or JSON text"};
  } else {
    Config env_only = load_config(
        [](const char* variable) -> const char* {
          return std::string_view(variable) == "MFU_MODEL_CONFIG" ? nullptr : std::getenv(variable);
        },
        nullptr);
    config.peak = env_only.peak;
    r.json["model"] = Json(nullptr);
    r.json["shape"] = {{"m", call.m.value_or(0)}, {"n", call.n.value_or(0)}, {"k", call.k.value_or(0)}};
  }
  r.convention = model ? model->convention() : "exact";
  r.attention = name(options.attention);
  const bool all_logits =
      options.logits == LogitsMode::kAll ||
      (options.logits == LogitsMode::kByPhase && (job.phase == Phase::kTrain || (model && model->spec().is_encoder)));
  r.logits = all_logits ? "all" : "last";
  r.json["convention"] = name(options.convention);
  r.json["attention"] = r.attention;
  r.json["logits"] = r.logits;

  std::optional<double> flop, bytes;
  if (!call.kernel.empty()) {
    Result<KernelFlop> work = kernel_of(call, model ? &*model : nullptr, job, options);
    if (!work) return work.error();
    r.kernel = *work;
    r.json["kernel"] = kernel_json(call.kernel, *work);
    r.json["flop"] = {{"total", integer(work->flop)}};
    flop = work->flop.to_double();
    if (!call.gpu.empty()) {
      // One kernel's bytes depend on its fusion: the bound shown is that of its arithmetic alone.
      if (Result<void> added =
              add_peak(call, config, model ? model->dtype() : std::nullopt, Phase::kTrain, flop, bytes, r);
          !added)
        return added.error();
    }
    return r;
  }
  if (!job.has_shape) {
    r.json["flop"] = nullptr;
    r.json["bytes"] = nullptr;
    return r;
  }
  const CountRequest request = job.request(options);
  Result<FlopCount> counted = model->count_flop(request);
  if (!counted) return counted.error();
  r.flop = *counted;
  Json parts;
  for (const auto& [part, count] : named_parts(*counted)) parts[part] = integer(count);
  if (!counted->mlp_routed.is_zero()) {
    parts["mlp_parts"] = {{"mlp_dense", integer(counted->mlp_dense)},
                          {"mlp_routed", integer(counted->mlp_routed)},
                          {"mlp_shared", integer(counted->mlp_shared)}};
  }
  if (model->spec().is_encoder_decoder()) parts["encoder_forward"] = integer(counted->encoder_forward);
  if (!counted->absorbed_scores.is_zero()) {
    parts["mla_absorbed"] = {{"attn_scores", integer(counted->absorbed_scores)},
                             {"attn_av", integer(counted->absorbed_av)}};
  }
  parts["forward"] = integer(counted->forward);
  parts["backward"] = integer(counted->backward);
  parts["recompute"] = integer(counted->recompute);
  parts["total"] = integer(counted->total);
  r.json["flop"] = parts;
  r.json["tokens"] = integer(counted->tokens);
  flop = counted->total.to_double();
  if (job.phase == Phase::kTrain) {
    r.json["bytes"] = nullptr;  // no agreed minimum
  } else {
    Result<ByteCount> moved = model->count_bytes(request);
    if (moved) {
      r.bytes = *moved;
      r.json["bytes"] = {{"weights_read", integer(moved->weights_read)},
                         {"weights_read_min", integer(moved->weights_read_min)},
                         {"weights_read_max", integer(moved->weights_read_max)},
                         {"kv_read", integer(moved->kv_read)},
                         {"kv_write", integer(moved->kv_write)},
                         {"embedding_rows", integer(moved->embedding_rows)},
                         {"kv_resident_end", integer(moved->kv_resident_end)},
                         {"kv_resident_end_windowed", integer(moved->kv_resident_end_windowed)}};
      bytes = moved->moved().to_double();
    } else {
      r.json["bytes"] = nullptr;
      r.bytes_missing = moved.error().message;
    }
  }
  if (!call.gpu.empty()) {
    if (Result<void> added = add_peak(call, config, model->dtype(), job.phase, flop, bytes, r); !added)
      return added.error();
  }
  return r;
}

int run_flops(const FlopsCall& call) {
  if (call.list) {
    print_types();
    return 0;
  }
  if (!call.as.empty()) {
    const auto types = known_model_types();
    if (std::find(types.begin(), types.end(), call.as) == types.end()) {
      fmt::print(stderr, "mfu flops: --as: expected a model type, got \"{}\"; nearest: {}\n", call.as,
                 nearest_model_types(call.as));
      return 2;
    }
    fmt::print(stderr, "mfu flops: counted as {} because --as says so; keys that {} does not have are not understood\n",
               call.as, call.as);
  }
  const Result<Report> report = make_report(call);
  if (!report) {
    fmt::print(stderr, "mfu flops: {}\n", report.error().message);
    return 1;
  }
  if (call.schema) {
    const Getenv environment = environment_of(call);
    const Result<Config> config = load_config_file(call.config, environment);
    if (config.ok() && config->model) fmt::print("{}\n", Json::parse(spec_json(config->model->spec())).dump(2));
    return 0;
  }
  if (call.json) {
    fmt::print("{}\n", report->json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (call.markdown) {
    print_markdown(*report);
  } else {
    print_table(*report);
  }
  return 0;
}

}  // namespace

void add_flops(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("flops", "What MFU multiplies by: FLOP, bytes and parameters, component by component");
  const auto call = std::make_shared<FlopsCall>();
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const CLI::Range from_zero(std::int64_t{0}, kMost), from_one(std::int64_t{1}, kMost);
  command->add_option("config", call->config, "config file, folder, model id in the Hugging Face cache, or JSON text");
  command->add_option("--as", call->as, "read the config as one of this model type")->type_name("FAMILY");
  command->add_flag("--list", call->list, "print the model types that are known");
  command->add_option("--phase", call->phase, "what the work is")->check(CLI::IsMember({"train", "prefill", "decode"}));
  command->add_option("--batch", call->batch, "sequences")->check(from_zero);
  command->add_option("--seq-len", call->seq_len, "new tokens per sequence and pass")->check(from_zero);
  command->add_option("--seq-lens", call->seq_lens, "new tokens of each sequence, for ragged batches")
      ->delimiter(',')
      ->check(from_zero);
  command->add_option("--context", call->context, "tokens already cached per sequence")->check(from_zero);
  command->add_option("--contexts", call->contexts, "tokens already cached of each sequence")
      ->delimiter(',')
      ->check(from_zero);
  command->add_option("--new-tokens", call->new_tokens, "decode passes, over a growing context")->check(from_zero);
  command->add_option("--grad-accum", call->grad_accum, "micro-batches per step")->check(from_one);
  command->add_option("--encoder-len", call->encoder_len, "encoder tokens per sequence (encoder-decoder models)")
      ->check(from_zero);
  command->add_option("--encoder-runs", call->encoder_runs, "whether the encoder is part of the work")
      ->check(CLI::IsMember({"yes", "no"}));
  command->add_option("--attention", call->attention, "which query-key pairs count")
      ->check(CLI::IsMember({"causal", "full", "full_windowed"}));
  command->add_option("--context-mode", call->context_mode, "context of decode passes after the first")
      ->check(CLI::IsMember({"auto", "fixed", "max"}));
  command->add_option("--images", call->images, "images of the vision tower, HEIGHTxWIDTH each")
      ->delimiter(',')
      ->type_name("SIZE");
  command->add_option("--logits", call->logits, "rows of the output matrix")->check(CLI::IsMember({"all", "last"}));
  command
      ->add_option("--convention", call->convention,
                   "exact, exact-full, palm, nanogpt, torchtitan, megatron, kaplan, chinchilla, 6nd")
      ->type_name("NAME");
  command->add_option("--recompute", call->recompute, "what the backward pass computes again")
      ->check(CLI::IsMember({"none", "flash", "selective", "full"}));
  command->add_option("--gpu", call->gpu, "device for the peak and the roofline")->type_name("GPU");
  command->add_option("--dtype", call->dtype, "dtype of the matmul operands")->type_name("DTYPE");
  command->add_option("--weight-dtype", call->weight_dtype, "dtype of every weight in memory")->type_name("DTYPE");
  command->add_option("--kv-dtype", call->kv_dtype, "dtype of the cache")->type_name("DTYPE");
  command->add_flag("--sparse", call->sparse, "divide by the 2:4 sparse peak");
  command->add_option("--kernel", call->kernel, "one kernel's share instead of the model")
      ->check(CLI::IsMember(std::vector<std::string>(kKernelKinds.begin(), kKernelKinds.end())));
  command->add_option("--m", call->m, "rows of the GEMM")->check(from_one);
  command->add_option("--n", call->n, "columns of the GEMM")->check(from_one);
  command->add_option("--k", call->k, "inner dimension of the GEMM")->check(from_one);
  command->add_flag("--json", call->json, "JSON, a contract");
  command->add_flag("--markdown", call->markdown, "a Markdown table");
  command->add_flag("--schema", call->schema, "the model as resolved, in the project's own schema");
  command->footer(help_footer({"mfu flops config.json --phase train --batch 8 --seq-len 4096",
                               "mfu flops Qwen/Qwen3-8B --phase decode --batch 32 --context 2048 --gpu H100",
                               "mfu flops config.json --convention palm --json",
                               "mfu flops --kernel gemm --m 4096 --n 4096 --k 4096 --gpu H100 --dtype bf16"},
                              "0; 1 when the config or the shape cannot be counted"));
  command->callback([call] {
    if (const int code = run_flops(*call); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace mfu
