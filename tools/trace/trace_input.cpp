#include "tools/trace/trace_input.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/say.h"
#include "tools/trace/open_trace.h"

namespace mfu {
namespace {

/// A bar on stderr while a file is read, when a person looks at it and the file is large enough to wait for.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)), shown_(::isatty(STDERR_FILENO) == 1) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() {
    if (percent_ >= 0) say(stderr, "\r\033[K");
  }
  void update(std::uint64_t done, std::uint64_t total) {
    constexpr std::uint64_t kWorthABar = 8u << 20u;  // smaller files are read before the eye sees it
    if (!shown_ || total < kWorthABar) return;
    const int percent = static_cast<int>(std::min<std::uint64_t>(100, done * 100 / total));
    if (percent == percent_) return;
    percent_ = percent;
    constexpr int kWidth = 30;
    const int filled = percent * kWidth / 100;
    say(stderr, "\r\033[K[{:#<{}}{:.<{}}] {:3} % of {:.1f} MB  {}", "", filled, "", kWidth - filled, percent,
        static_cast<double>(total) / 1e6, label_);
    std::fflush(stderr);
  }

 private:
  std::string label_;
  bool shown_;
  int percent_ = -1;
};

}  // namespace

Result<Config> trace_config(const WorkOptions& options) {
  const auto environment = [&options](const char* name) -> const char* {
    if (!options.interval.empty() && std::string_view(name) == "MFU_INTERVAL") return options.interval.c_str();
    if (std::string_view(name) == "MFU_MODEL_CONFIG") return nullptr;
    return std::getenv(name);
  };
  std::vector<Override> overrides;
  for (const auto& [key, option, value] : {std::tuple{"batch", "--batch", options.batch},
                                           {"seq_len", "--seq-len", options.seq_len},
                                           {"context", "--context", options.context}})
    if (value) overrides.push_back({std::string("workload.") + key, std::to_string(*value), option});
  Result<Config> config = options.config.empty() ? load_config(environment, nullptr)
                                                 : load_config_file(options.config, environment, std::move(overrides));
  if (config && options.peak_tflops) config->peak.tflops = options.peak_tflops;
  if (config && options.peak_gbps) config->peak.gbps = options.peak_gbps;
  return config;
}

Result<Trace> open_trace_with_bar(const std::string& path) {
  ProgressBar bar(path);
  return open_trace(path, [&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); });
}

}  // namespace mfu
