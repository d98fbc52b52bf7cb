// What every command that takes traces needs: the config that the options and the environment name, and a bar while a
// large file is read.
#pragma once

#include <string>

#include "core/base/result.h"
#include "core/config/config.h"
#include "tools/trace/trace.h"

namespace mfu {

/// The config for traces: `config` (MFU_MODEL_CONFIG is not looked at, it belongs to live runs) under the environment's
/// other variables. `interval`: instead of MFU_INTERVAL; empty: that one. Error: `config` cannot be used.
[[nodiscard]] Result<Config> trace_config(const std::string& config, const std::string& interval);

/// open_trace, with a bar on stderr while a person waits for a large file.
[[nodiscard]] Result<Trace> open_trace_with_bar(const std::string& path);

}  // namespace mfu
