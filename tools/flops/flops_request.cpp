#include "tools/flops/flops_request.h"

#include <fmt/format.h>

#include <algorithm>

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

std::vector<Override> config_overrides(const FlopsCall& call) {
  std::vector<Override> overrides;
  const auto text = [&overrides](const char* option, const char* key, const std::string& value) {
    if (!value.empty()) overrides.push_back({key, value, option});
  };
  const auto number = [&overrides](const char* option, const char* key, std::optional<std::int64_t> value) {
    if (value) overrides.push_back({key, std::to_string(*value), option});
  };
  text("--as", "model.model_type", call.as);
  text("--phase", "workload.phase", call.phase);
  number("--batch", "workload.batch", call.batch);
  number("--seq-len", "workload.seq_len", call.seq_len);
  number("--context", "workload.context", call.context);
  number("--new-tokens", "workload.new_tokens", call.new_tokens);
  number("--encoder-len", "workload.encoder_len", call.encoder_len);
  number("--grad-accum", "workload.grad_accum", call.grad_accum);
  text("--recompute", "workload.recompute", call.recompute);
  if (!call.images.empty()) text("--images", "workload.images", Json(call.images).dump());
  text("--convention", "counting.convention", call.convention);
  // This one says how attention counts as well, whatever the file says of it.
  if (call.convention == "exact-full") text("--convention", "counting.attention", "full");
  text("--attention", "counting.attention", call.attention);
  text("--logits", "counting.logits", call.logits);
  text("--context-mode", "counting.context", call.context_mode);
  text("--weight-dtype", "counting.weight_dtype", call.weight_dtype);
  text("--kv-dtype", "counting.kv_dtype", call.kv_dtype);
  text("--dtype", "peak.dtype", call.dtype);
  if (call.sparse) text("--sparse", "peak.sparse", "true");
  return overrides;
}

Result<void> check_call(const FlopsCall& call) {
  if (call.json && call.markdown) return Error{"one of --json and --markdown at a time"};
  if (call.kernel == "gemm" && (!call.m || !call.n || !call.k))
    return Error{"--kernel gemm: expected --m, --n and --k"};
  if (call.config.empty() && call.kernel != "gemm")
    return Error{"CONFIG: expected a config file, a folder, a model id or JSON text, got nothing"};
  return {};
}

Result<FlopsJob> make_job(const FlopsCall& call, const Config& config) {
  FlopsJob job;
  const FlopsModel& model = *config.model;
  const FlopsOptions& options = model.options();
  const Architecture& spec = model.spec();
  const Shape& w = config.workload.shape;
  job.phase = config.workload.phase.value_or(Phase::kTrain);
  if (job.phase != Phase::kTrain && job.phase != Phase::kPrefill && job.phase != Phase::kDecode) {
    return Error{"--phase: expected train, prefill or decode"};
  }
  const bool decode = job.phase == Phase::kDecode;
  const std::int64_t batch = w.batch.value_or(1);
  std::optional<std::int64_t> seq_len = w.seq_len;
  if (!seq_len && call.seq_lens.empty() && w.tokens && !decode && batch > 0 && *w.tokens % batch == 0)
    seq_len = *w.tokens / batch;
  const std::optional<std::int64_t> context = w.context;
  if (spec.is_encoder_decoder() || spec.reads_context()) {
    const std::optional<std::int64_t> encoder_len = w.encoder_len;
    job.encoder_runs = call.encoder_runs.empty() ? !decode : call.encoder_runs == "yes";
    if (encoder_len) job.encoder_len = *encoder_len;
    if (!encoder_len && (seq_len || decode || call.batch || !call.seq_lens.empty())) {
      return Error{"--encoder-len: expected the encoder's tokens per sequence for model_type " + spec.family +
                   (spec.reads_context() ? " (tokens of the text)" : "")};
    }
    if (!seq_len && encoder_len && job.phase == Phase::kPrefill) seq_len = 1;  // the first decoder token
  } else if (spec.image_context) {
    job.encoder_runs = call.encoder_runs.empty() ? !decode : call.encoder_runs == "yes";
    job.encoder_len = w.encoder_len.value_or(0);
    if (job.encoder_len > 0) job.shape["encoder_len"] = job.encoder_len;
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
  if (!job.has_shape && !call.kernel.empty() && call.kernel != "gemm")
    return Error{"--kernel " + call.kernel + ": expected a shape: --seq-len, or --phase decode --context"};
  if (decode) {
    job.passes = w.new_tokens.value_or(1);
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
