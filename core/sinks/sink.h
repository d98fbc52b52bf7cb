// Where closed windows go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/rows/device_info.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// Facts that hold for the whole run: the `start` line.
struct RunInfo {
  TimeNs t_ns = 0;  ///< UTC
  std::string host;
  std::int64_t pid = 0;
  std::int64_t rank = 0;
  std::optional<std::int64_t> local_rank;  ///< among the processes of its host, where the launcher says so
  std::int64_t world_size = 1;
  TimeNs began_ns = 0;       ///< when the process was started, UTC; 0: not known
  std::string job_id;        ///< of its launcher, the same through restarts; empty: the launcher does not say
  std::int64_t restart = 0;  ///< how often the launcher had started that job before
  std::string version;
  std::string commit;   ///< of the source; empty: unknown
  std::string build;    ///< the package that holds the library; empty outside of packages
  std::string command;  ///< of the process, as command_text() puts it
  std::vector<DeviceInfo> devices;
  std::string cupti_path;
  std::uint32_t cupti_version = 0;  ///< cuptiGetVersion()
  std::string level;                ///< rung of the fallback ladder: `full`, `share`, `ranges`, `inert`
  std::string config_json = "{}";   ///< the config as resolved
  std::string model_json = "null";  ///< the `model` block of `mfu flops --json`, or null
  std::string convention;           ///< how FLOP were counted
  std::string trace;                ///< the file that gets its last seconds (MFU_TRACE); empty: none
};

/// A warning or a change of state. Of kind `stalled`: which stall begins; `resumed` ends it.
struct RunEvent {
  TimeNs t_ns = 0;            ///< UTC
  std::string kind, message;  ///< a stable word, and one line for a person
  std::optional<Stall> stall = {};
};

/// [mfu-sink] May block, may allocate, never throws.
class Sink {
 public:
  virtual ~Sink() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Once, before the first window; again when a device appears later.
  [[nodiscard]] virtual Result<void> start(const RunInfo& run) = 0;
  /// One closed window. An Error is counted under name(); the next window is tried again.
  [[nodiscard]] virtual Result<void> write(const WindowSummary& window) = 0;
  [[nodiscard]] virtual Result<void> event(const RunEvent& event) = 0;
  /// A notice about the last window, to be shown once; empty as a rule.
  [[nodiscard]] virtual std::string take_notice() { return {}; }
};

}  // namespace mfu
