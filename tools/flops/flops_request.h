// The command line of `mfu flops`, and what it asks to be counted.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/config/config.h"
#include "core/model/flops_model.h"

namespace mfu {

/// The sizes of the command line of `mfu flops` as they came in. Empty or absent: not given.
struct FlopsSizes {
  std::optional<std::int64_t> batch, seq_len, context, new_tokens, documents, grad_accum, encoder_len, m, n, k;
  std::vector<std::int64_t> seq_lens, contexts;
  std::vector<std::string> images;
};

/// All of it, likewise.
struct FlopsCall : FlopsSizes {
  std::string config;
  std::string phase, attention, logits, convention, gpu, dtype, weight_dtype, kv_dtype, kernel, encoder_runs, recompute,
      context_mode;
  std::optional<std::int64_t> tp, pp, cp, ep, dp;
  std::string as, by;
  bool sparse = false, json = false, markdown = false, schema = false, list = false;
};

/// The work to count, from the call and the config's workload.
struct FlopsJob {
  Phase phase = Phase::kTrain;
  std::vector<SequenceGroup> sequences;
  std::int64_t passes = 1;
  std::int64_t encoder_len = 0;
  bool encoder_runs = true;
  bool has_shape = false;
  nlohmann::ordered_json shape = nlohmann::ordered_json::object();  ///< as the outputs show it

  [[nodiscard]] CountRequest request(const FlopsOptions& options) const;
};

/// `train`, `prefill` or `decode`.
std::string_view phase_name(Phase phase);

/// The options that stand for keys of the config, as settings over it: one reader decides what each may be.
std::vector<Override> config_overrides(const FlopsCall& call);

/// Mistakes in the words of the call alone. The values of single options were checked before.
Result<void> check_call(const FlopsCall& call);

/// The request of the call, of a config that was read with its overrides and has a model. An Error names the option.
Result<FlopsJob> make_job(const FlopsCall& call, const Config& config);

}  // namespace mfu
