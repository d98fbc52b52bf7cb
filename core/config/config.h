// The settings of a run: environment variables, and the file that MFU_MODEL_CONFIG names. Read once, at start-up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/environment.h"
#include "core/base/result.h"
#include "core/config/launcher.h"
#include "core/config/overrides.h"
#include "core/config/problem.h"
#include "core/model/flops_model.h"
#include "core/model/workload.h"
#include "core/peak/peak.h"
#include "core/ranges/region_rules.h"

namespace mfu {

enum class ProfilerPolicy : std::uint8_t { kOwn, kShare };
/// How CUDA graphs are timed.
enum class GraphTracing : std::uint8_t {
  kAuto,   ///< each launch as a whole, and split into its nodes as far as these are known from elsewhere
  kNode,   ///< every node
  kGraph,  ///< each launch as a whole
};

/// A number and how messages and tables show it.
struct ShownNumber {
  double value;
  const char* text;
};
/// MFU_INTERVAL [s].
inline constexpr ShownNumber kDefaultInterval{10, "10"}, kLeastInterval{0.01, "0.01"}, kMostInterval{1e6, "1,000,000"};

/// Lines for people.
struct LogSettings {
  std::string target = "stderr";  ///< MFU_LOG: stderr, stdout, none or a path (expanded)
  std::int64_t every = 1;         ///< MFU_LOG_EVERY: every so many-th window; 0: the table only
  bool json = false;              ///< MFU_LOG_FORMAT=json: the run directory's lines
  bool all_ranks = false;         ///< MFU_LOG_RANKS=all
  bool components = false;        ///< MFU_COMPONENTS: below each region its matmuls
};

/// All settings of a run, and which process of its job it is. Each field's default is the documented one.
struct Config : LauncherFacts {
  std::optional<FlopsModel> model;  ///< none: times and waterfall only
  std::string model_source;         ///< MFU_MODEL_CONFIG as resolved (path, id or `inline`)
  Workload workload;
  PeakOptions peak;
  std::vector<RegionRule> regions;   ///< the config's own rules, in order; built-in ones follow them
  std::vector<std::string> presets;  ///< built-in rule packs to use; empty: all

  double interval_s = kDefaultInterval.value;  ///< MFU_INTERVAL [s], within its limits
  std::string tb_dir;                          ///< MFU_TB_DIR, expanded: TensorBoard event files; empty: none
  std::string run_dir;                         ///< MFU_RUN_DIR, %h %p %r expanded; empty: no files
  double run_dir_limit_mb = 100;               ///< MFU_RUN_DIR_LIMIT [1e6 B a day]; 0: none
  LogSettings log;
  ProfilerPolicy profiler = ProfilerPolicy::kOwn;  ///< MFU_PROFILER
  GraphTracing graphs = GraphTracing::kAuto;       ///< MFU_GRAPHS
  std::string cupti_path;                          ///< MFU_CUPTI; empty: search
  bool cupti_v2 = false;                           ///< MFU_CUPTI_V2: a subscriber that allows others
  std::string trace;                               ///< MFU_TRACE: file of the last seconds, expanded; empty: none
  double trace_seconds = 60;                       ///< MFU_TRACE_SECONDS [s], > 0
  bool disabled = false;                           ///< MFU_DISABLE=1
  bool executed = true;                            ///< MFU_EXECUTED: look at calls to cuBLAS
  bool detect = true;                              ///< MFU_DETECT: find steps where no range names any
  bool python = true;                              ///< MFU_PYTHON: ask the interpreter what the program does
  bool layers = false;                             ///< MFU_PARTS: regions for the layers of a model
  bool energy = true;                              ///< MFU_ENERGY: read energy counters at ends of windows
  bool idle = true;                                ///< MFU_IDLE: look at the host while the GPU is idle
  double stall_s = 30;                             ///< MFU_STALL [s]: so long without an end is a stall; 0: never
  bool explain_detection = false;                  ///< MFU_DETECT=explain: and say why each was taken or refused

  std::string host;  ///< gethostname()

  /// The config as resolved, as JSON text: the `config` key of the run directory's `start` line.
  std::string resolved_json = "{}";
  /// A misspelt MFU_* name with the nearest right one, an unusable value and what was used instead, an unknown key of
  /// the config file. Never fatal.
  std::vector<Problem> problems;
  std::vector<std::string> warnings;  ///< the same for people, one line each

  [[nodiscard]] const FlopsModel* flops_model() const noexcept { return model ? &*model : nullptr; }
};

/// Reads the environment and the config file it names. Never fails: each mistake becomes one of `problems`
/// (place, key, value, what was expected, what is used instead), and everything else still works.
/// \param environ_block nullptr-terminated `NAME=value` list to check for misspelt MFU_* names; may be nullptr.
[[nodiscard]] Config load_config(const Getenv& getenv, const char* const* environ_block);

/// The same from an explicit config (file, folder, model id or inline JSON) as the command line gives it.
/// Unlike load_config, an unusable config is an Error: a person is waiting for the answer.
/// \param overrides options of the command line, over what the file and MFU_SET say
[[nodiscard]] Result<Config> load_config_file(std::string_view source, const Getenv& getenv,
                                              std::vector<Override> overrides = {});

}  // namespace mfu
