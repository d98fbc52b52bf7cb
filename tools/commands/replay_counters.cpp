#include "tools/commands/replay_counters.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/say.h"
#include "tools/counters/counter_report.h"

namespace mfu {

bool are_counters(const std::vector<std::string>& paths) {
  return std::all_of(paths.begin(), paths.end(), [](const std::string& path) { return path.ends_with(".csv"); });
}

int replay_counters(const std::vector<std::string>& paths, const std::string& gpu, const PeakOptions& peak, bool json) {
  const auto fail = [](const std::string& message) { return say_error("replay", message); };
  std::vector<CounterFile> files;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return fail(path + ": " + std::strerror(errno));
    Result<CounterFile> file = read_counters(in, path);
    if (!file) return fail(file.error().message);
    files.push_back(std::move(*file));
  }
  const Result<CounterReport> report = report_counters(files, gpu, peak);
  if (!report) return fail(report.error().message);
  if (json)
    say("{}\n", Lines{counter_json(*report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)});
  else
    say("{}", Lines{counter_text(*report)});
  return 0;
}

}  // namespace mfu
