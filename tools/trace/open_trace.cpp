#include "tools/trace/open_trace.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/number_text.h"
#include "tools/trace/byte_source.h"
#include "tools/trace/kineto.h"
#include "tools/trace/nsys.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSqliteMagic{"SQLite format 3\0", 16};

/// Files that are given by mistake, by their first bytes: their kind, and a way out.
constexpr std::pair<std::string_view, std::string_view> kOtherFiles[] = {
    {"NVIDIA Tegra Pro", "is a report of Nsight Systems: export it with `nsys export --type sqlite FILE`"},
    {"version https://", "is a pointer of Git LFS, not the file: `git lfs pull` fetches it"},
    {std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16),
     "begins with zeros, as a file that was not written to its end (an SQLite file has its header there): export or "
     "copy it again"},
    {std::string_view("NVR\0", 4),
     "is a report of Nsight Compute, which has no launches: expected nsys profile --trace=cuda,nvtx"},
    {"PK\3\4", "is a zip archive: unpack it first"},
};

bool has_trace_name(std::string_view name) {
  return name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite") ||
         name.ends_with(".sqlite.gz");
}

}  // namespace

Result<Trace> open_trace(const std::string& path, const ReadProgress& progress) {
  // The first bytes decide; the file is then read from its start again.
  Result<ByteSource> look = ByteSource::open(path);
  if (!look) return look.error();
  std::array<char, kSqliteMagic.size()> start{};
  const Result<std::size_t> got = look->read(start);
  if (!got) return got.error();
  Result<ByteSource> source = ByteSource::open(path);
  if (!source) return source.error();
  const std::string_view first(start.data(), got.value());
  for (const auto& [magic, what] : kOtherFiles)
    if (first.starts_with(magic)) return Error{path + ": " + std::string(what)};
  const bool sqlite = first == kSqliteMagic;
  return sqlite ? read_nsys(std::move(source).value(), progress) : read_kineto(std::move(source).value(), progress);
}

Result<std::vector<std::string>> list_traces(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored) && has_trace_name(at->path().filename().string()))
      files.push_back(at->path().string());
  }
  if (error) return Error{path + ": cannot be listed: " + error.message()};
  if (files.empty()) return Error{path + ": holds no trace: expected .json, .json.gz, .sqlite or .sqlite.gz files"};
  std::sort(files.begin(), files.end(), natural_less);
  return files;
}

}  // namespace mfu
