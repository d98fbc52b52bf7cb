#include "tools/run_dir/find_run_dir.h"

#include <glob.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>

namespace mfu {
namespace {

namespace fs = std::filesystem;

/// A glob(7) pattern for what MFU_RUN_DIR expands to in the processes of a job.
std::string pattern_of(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '%' && (next == 'h' || next == 'p' || next == 'r')) {
      out += '*';
      ++i;
    } else if (c == '%' && next == '%') {
      out += '%';
      ++i;
    } else if (const std::size_t end = text.find('}', i); text.substr(i, 3) == "%q{" && end != std::string_view::npos) {
      const char* value = std::getenv(std::string(text.substr(i + 3, end - i - 3)).c_str());
      out += value != nullptr ? value : "*";
      i = end;
    } else {
      if (std::string_view("*?[\\").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::vector<std::string> matching(const std::string& pattern) {
  std::vector<std::string> found;
  ::glob_t paths{};
  if (::glob(pattern.c_str(), 0, nullptr, &paths) == 0)
    for (std::size_t i = 0; i < paths.gl_pathc; ++i) found.emplace_back(paths.gl_pathv[i]);
  ::globfree(&paths);
  return found;
}

}  // namespace

Result<std::vector<std::string>> find_run_dirs(const std::vector<std::string>& given) {
  if (!given.empty()) return given;
  if (const char* named = std::getenv("MFU_RUN_DIR"); named != nullptr && *named != '\0') {
    auto found = matching(pattern_of(named));
    if (found.empty()) return Error{std::string("MFU_RUN_DIR ") + named + ": no such directory yet"};
    return found;
  }
  std::error_code failed;
  std::string newest;
  fs::file_time_type newest_time{};
  for (fs::directory_iterator at("mfu-runs", failed); !failed && at != fs::directory_iterator(); at.increment(failed)) {
    std::error_code unreadable;
    if (!at->is_directory(unreadable)) continue;
    const auto time = at->last_write_time(unreadable);
    if (unreadable || (!newest.empty() && time <= newest_time)) continue;
    newest = at->path().string();
    newest_time = time;
  }
  if (newest.empty())
    return Error{"no run directory: name one, set MFU_RUN_DIR, or start a program with `mfu run` in this folder"};
  return std::vector<std::string>{newest};
}

std::string new_run_dir() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 64> name{};
  std::strftime(name.data(), name.size(), "mfu-runs/%Y%m%d-%H%M%S", &local);
  return std::string(name.data()) + "-" + std::to_string(::getpid());
}

}  // namespace mfu
