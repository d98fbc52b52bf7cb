// Any lines as the environment: a Config within its bounds, and printable complaints of one line each.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> lines;
  std::map<std::string, std::string, std::less<>> variables;
  while (!text.empty() && lines.size() < 64) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find('\0') != std::string_view::npos) continue;  // no environment holds one
    const std::size_t equal = line.find('=');
    // A path would lead into the disk, which is no business of a fuzzer; config_fuzz has the contents.
    if (equal == std::string_view::npos || line.starts_with("MFU_MODEL_CONFIG=")) continue;
    lines.emplace_back(line);
    variables.try_emplace(std::string(line.substr(0, equal)), line.substr(equal + 1));
  }
  std::vector<const char*> block;
  for (const std::string& line : lines) block.push_back(line.c_str());
  block.push_back(nullptr);
  const mfu::Getenv environment = [&](const char* name) -> const char* {
    const auto at = variables.find(std::string_view(name));
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  const mfu::Config config = mfu::load_config(environment, block.data());
  require(config.interval_s >= 0.01 && config.interval_s <= 1e6);
  require(config.trace_seconds > 0 && config.trace_seconds <= 1e6);
  require(config.run_dir_limit_mb == 0 || (config.run_dir_limit_mb >= 1 && config.run_dir_limit_mb <= 1e9));
  require(config.rank >= 0 && config.world_size > 0 && config.log.every >= 0);
  for (const std::string& line : config.warnings) {
    require(line.size() < 2000);
    for (const char c : line) require(static_cast<unsigned char>(c) >= 0x20);
  }
  return 0;
}
