#include "tools/flops/flops_request.h"

#include <fmt/format.h>

#include <algorithm>

namespace mfu {

using Json = nlohmann::ordered_json;

CountRequest FlopsJob::request(const FlopsOptions& options) const {
  return {phase, sequences, passes, encoder_len, encoder_runs, options.images};
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
  number("--documents", "workload.documents", call.documents);
  number("--grad-accum", "workload.grad_accum", call.grad_accum);
  number("--tp", "parallel.tp", call.tp);
  number("--pp", "parallel.pp", call.pp);
  number("--cp", "parallel.cp", call.cp);
  number("--ep", "parallel.ep", call.ep);
  number("--dp", "parallel.dp", call.dp);
  text("--recompute", "workload.recompute", call.recompute);
  if (!call.images.empty()) text("--images", "workload.images", Json(call.images).dump());
  text("--convention", "counting.convention", call.convention);
  // This one says how attention counts as well, in place of what the file says.
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

namespace {

/// The encoder's part of the shape: from the config, or as --encoder-runs says. \param asked whether anything is to be
/// counted, so that a length is needed.
Result<void> read_encoder(const FlopsCall& call, const Architecture& spec, const Shape& shape, bool asked,
                          FlopsJob& job) {
  const bool runs = call.encoder_runs.empty() ? job.phase != Phase::kDecode : call.encoder_runs == "yes";
  if (spec.is_encoder_decoder() || spec.reads_context()) {
    if (!shape.encoder_len && asked) {
      return Error{"--encoder-len: expected the encoder's tokens per sequence for model_type " + spec.family +
                   (spec.reads_context() ? " (tokens of the text)" : "")};
    }
    job.encoder_runs = runs;
    job.encoder_len = shape.encoder_len.value_or(0);
  } else if (spec.image_context) {
    job.encoder_runs = runs;
    job.encoder_len = shape.encoder_len.value_or(0);
    if (job.encoder_len > 0) job.shape["encoder_len"] = job.encoder_len;
  } else if (call.encoder_len || !call.encoder_runs.empty()) {
    return Error{"--encoder-len: model_type " + spec.family + " has no encoder"};
  }
  return {};
}

/// Sequences that --seq-lens and --contexts list one by one.
Result<void> list_sequences(const FlopsCall& call, const Shape& shape, FlopsJob& job) {
  const bool decode = job.phase == Phase::kDecode;
  const std::size_t count = std::max(call.seq_lens.size(), call.contexts.size());
  if (!call.seq_lens.empty() && !call.contexts.empty() && call.seq_lens.size() != call.contexts.size()) {
    return Error{fmt::format("--contexts: expected {} values, one per --seq-lens, got {}", call.seq_lens.size(),
                             call.contexts.size())};
  }
  if (call.seq_lens.empty() && !shape.seq_len && !decode)
    return Error{"--seq-lens: expected new tokens of each sequence beside --contexts"};
  if (call.contexts.empty() && decode && !shape.context)
    return Error{"--contexts: expected the cached tokens of each sequence for decode"};
  Json lens = Json::array(), contexts = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t fed = call.seq_lens.empty() ? shape.seq_len.value_or(1) : call.seq_lens[i];
    const std::int64_t past = call.contexts.empty() ? shape.context.value_or(0) : call.contexts[i];
    job.sequences.push_back({call.batch.value_or(1), past, fed});
    lens.push_back(fed);
    contexts.push_back(past);
  }
  job.shape["batch"] = static_cast<std::int64_t>(count) * call.batch.value_or(1);
  job.shape["seq_lens"] = lens;
  job.shape["contexts"] = contexts;
  for (const SequenceGroup& s : job.sequences) {
    if (s.count < 0 || s.past < 0 || s.fed < 0) return Error{"the shape: expected values >= 0"};
  }
  return {};
}

/// Equal sequences, as a region with this shape would be counted.
Result<void> equal_sequences(const FlopsCall& call, const FlopsModel& model, Shape shape, FlopsJob& job) {
  const Architecture& spec = model.spec();
  const bool decode = job.phase == Phase::kDecode;
  const bool whole = !decode && !spec.is_vision_only();
  if (whole && !shape.seq_len) {
    if (call.phase.empty() && !call.batch) return {};  // nothing is asked of any shape
    return Error{"--seq-len: expected new tokens per sequence for " + std::string(phase_name(job.phase))};
  }
  if (whole && job.phase == Phase::kTrain && shape.context.value_or(0) != 0)
    return Error{"--context: a training step has no cached tokens"};
  if (!shape.batch) shape.batch = 1;
  if (job.phase == Phase::kTrain) shape = unpacked(shape, model.options().documents);
  const ShapeRequest request = request_of(spec, spec.is_vision_only() ? Phase::kPrefill : job.phase, shape);
  if (std::string_view(request.missing) == "context")
    return Error{"--context: expected the tokens already in the cache for decode"};
  if (*request.missing != '\0') return Error{std::string("the shape: expected ") + request.missing};
  job.sequences.assign(request.groups.begin(), request.groups.begin() + request.used);
  const SequenceGroup& group = job.sequences.front();
  job.shape["batch"] = group.count;
  if (spec.is_vision_only()) return {};
  job.shape["seq_len"] = group.fed;
  job.shape["context"] = group.past;
  return {};
}

/// The remaining keys of the shape that the outputs show.
void describe(const Architecture& spec, const FlopsOptions& options, FlopsJob& job) {
  if (job.phase == Phase::kDecode) job.shape["new_tokens"] = job.passes;
  if (job.phase == Phase::kTrain) job.shape["grad_accum"] = options.grad_accum;
  if (spec.is_encoder_decoder() || spec.reads_context()) {
    job.shape["encoder_len"] = job.encoder_len;
    job.shape["encoder_runs"] = job.encoder_runs;
  }
  if (options.images.empty()) return;
  Json images = Json::array();
  for (const auto& [height, width] : options.images) images.push_back(fmt::format("{}x{}", height, width));
  job.shape["images"] = images;
}

}  // namespace

Result<FlopsJob> make_job(const FlopsCall& call, const Config& config) {
  FlopsJob job;
  const Architecture& spec = config.model->spec();
  job.phase = config.workload.phase.value_or(Phase::kTrain);
  if (job.phase != Phase::kTrain && job.phase != Phase::kPrefill && job.phase != Phase::kDecode)
    return Error{"--phase: expected train, prefill or decode"};
  const bool decode = job.phase == Phase::kDecode;
  const bool listed = !call.seq_lens.empty() || !call.contexts.empty();
  Shape shape = config.workload.shape;
  // Tokens in all count where they divide evenly: the command shows one length.
  const std::int64_t batch = shape.batch.value_or(1);
  if (!shape.seq_len && call.seq_lens.empty() && shape.tokens && !decode && batch > 0 && *shape.tokens % batch == 0)
    shape.seq_len = *shape.tokens / batch;
  shape.tokens.reset();
  const bool asked = shape.seq_len || decode || call.batch || !call.seq_lens.empty();
  if (const auto read = read_encoder(call, spec, shape, asked, job); !read) return read.error();
  if (!shape.seq_len && shape.encoder_len && job.phase == Phase::kPrefill &&
      (spec.is_encoder_decoder() || spec.reads_context()))
    shape.seq_len = 1;  // the first decoder token
  job.shape["phase"] = phase_name(job.phase);
  if (decode) job.passes = shape.new_tokens.value_or(1);
  const auto made = listed ? list_sequences(call, shape, job) : equal_sequences(call, *config.model, shape, job);
  if (!made) return made.error();
  job.has_shape = !job.sequences.empty();
  if (!job.has_shape && !call.kernel.empty() && call.kernel != "gemm")
    return Error{"--kernel " + call.kernel + ": expected a shape: --seq-len, or --phase decode --context"};
  describe(spec, config.model->options(), job);
  return job;
}

}  // namespace mfu
