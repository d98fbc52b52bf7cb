// Common to every command that takes traces: the config that the options and the environment name, and a bar while a
// large file is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/config/config.h"
#include "tools/trace/trace.h"

namespace mfu {

/// Options that describe the work that was recorded.
struct WorkOptions {
  std::string config = {};    ///< the model; empty: none
  std::string interval = {};  ///< of traces, instead of MFU_INTERVAL [s]; empty: that one
  std::optional<std::int64_t> batch = {}, seq_len = {}, context = {};
  std::optional<double> peak_tflops = {}, peak_gbps = {};
  std::optional<double> gpu_hour = {};  ///< price of a GPU for an hour, of finished runs
};

/// The config for traces (MFU_MODEL_CONFIG is not looked at, it belongs to live runs) under the environment's other
/// variables. Error: the config cannot be used.
[[nodiscard]] Result<Config> trace_config(const WorkOptions& options);

/// open_trace, with a bar on stderr while a person waits for a large file.
[[nodiscard]] Result<Trace> open_trace_with_bar(const std::string& path);

}  // namespace mfu
