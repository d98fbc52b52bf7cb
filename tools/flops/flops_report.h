// The result of `mfu flops`: FLOP, bytes and the roofline of a model and a shape, or of one kernel.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/model/flops_model.h"
#include "core/model/kernel_flop.h"
#include "core/model/module_count.h"
#include "core/peak/peak.h"
#include "core/rows/metrics.h"
#include "tools/flops/flops_request.h"

namespace mfu {

/// Everything the three outputs show.
struct FlopsReport {
  nlohmann::ordered_json json;  ///< the contract of `--json`
  std::optional<FlopCount> flop;
  std::optional<ByteCount> bytes;
  std::string bytes_missing;
  std::optional<Peak> peak;
  std::string dtype_from;
  Roofline best;
  std::optional<KernelFlop> kernel;
  std::string convention, attention, logits;
  std::string_view formula;          ///< version_of the convention
  std::string share;                 ///< share_text: the part of one rank; empty: all of it
  double flop_of_rank = 0;           ///< [FLOP] where `share` says something
  std::vector<ModuleCount> modules;  ///< where they were asked for; sums of them at the end
  std::int64_t output_bytes = 2;     ///< of an element that a module writes
  std::vector<std::pair<std::string_view, Count>> other_conventions;  ///< the total by each that is defined for it
};

/// The parts of a forward pass by the names of the outputs; those that few models have only where they are not zero.
std::vector<std::pair<const char*, Count>> named_parts(const FlopCount& count);

/// Which query-key pairs a count in this mode holds, in words: a mode says nothing of an encoder, where all count.
std::string attention_text(const Architecture& model, AttentionMode mode);

/// The config that the call names, read with the call's options over it; without one, what they and MFU_* say alone.
Result<Config> config_of(const FlopsCall& call);

/// The peak that the call asks for by `--gpu`; none: it does not. An Error names the option.
struct AskedPeak {
  std::optional<Peak> peak;
  std::string dtype_from;  ///< in words
};
Result<AskedPeak> peak_of(const FlopsCall& call, const Config& config);

/// Counts what was understood. An Error: numbers that cannot be worked out.
Result<FlopsReport> make_report(const FlopsCall& call, const Config& config, const FlopsJob& job,
                                const AskedPeak& asked);

}  // namespace mfu
