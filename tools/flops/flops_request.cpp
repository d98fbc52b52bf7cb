#include "tools/flops/flops_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "core/model/read_architecture.h"

namespace mfu {

using Json = nlohmann::ordered_json;

CountRequest FlopsJob::request(const FlopsOptions& options) const {
  CountRequest r;
  r.phase = phase;
  r.sequences = sequences;
  r.passes = passes;
  r.encoder_len = encoder_len;
  r.encoder_runs = encoder_runs;
  r.images = options.images;
  return r;
}

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

Result<FlopsJob> make_job(const FlopsCall& call, const Config& config, const FlopsModel& model,
                          const FlopsOptions& options) {
  FlopsJob job;
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

}  // namespace mfu
