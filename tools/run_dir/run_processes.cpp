#include "tools/run_dir/run_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "tools/run_dir/run_file.h"

namespace mfu {
namespace {

/// A part while its process is looked for.
struct FoundPart {
  FilePart part;
  std::optional<ProcessId> id;
  std::string first_line;  ///< where there is no start line
};

/// Cuts a file into parts, at its start lines.
class PartFinder {
 public:
  explicit PartFinder(std::string path) : path_(std::move(path)) {}

  void take(std::string_view text, std::uint64_t begin) {
    const std::uint64_t number = line_++;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
    constexpr std::size_t kType = 48;  // `{"v": 1, "type": "start"`
    if (text.substr(0, kType).find("\"start\"") != std::string_view::npos && start(text, begin, number)) return;
    if (parts_.empty()) open(begin, number);
    if (!first_known_) first(text);
    last_ = text;
  }

  std::vector<FoundPart> finish() {
    close(std::numeric_limits<std::uint64_t>::max());
    return std::move(parts_);
  }

 private:
  bool start(std::string_view text, std::uint64_t begin, std::uint64_t number) {
    const Result<RunLine> line = reader_.read(text);
    const auto* run = line ? std::get_if<RunInfo>(&line->what) : nullptr;
    if (run == nullptr) return false;
    const ProcessId id(*run);
    if (!parts_.empty() && parts_.back().id) {
      // Once more when a device appears.
      const ProcessId& now = *parts_.back().id;
      const bool same = now.host == id.host && now.rank == id.rank && now.pid == id.pid;
      if (same && (now == id || line->seq != 0)) return true;
    }
    close(begin);
    open(begin, number);
    parts_.back().id = id;
    parts_.back().part.has_start = true;
    return true;
  }
  void open(std::uint64_t begin, std::uint64_t number) {
    FoundPart found;
    found.part.path = path_;
    found.part.begin = begin;
    found.part.line = number;
    parts_.push_back(std::move(found));
    first_known_ = false;
  }
  void first(std::string_view text) {
    const Result<RunLine> line = reader_.read(text);
    if (!line) return;
    first_known_ = true;
    FilePart& part = parts_.back().part;
    part.first_seq = part.last_seq = line->seq;
    part.first_ns = part.last_ns = line->t_ns;
    if (!part.has_start) parts_.back().first_line = text;
  }
  void close(std::uint64_t end) {
    if (parts_.empty()) return;
    FilePart& part = parts_.back().part;
    part.end = end;
    if (const Result<RunLine> line = first_known_ ? reader_.read(last_) : Result<RunLine>(Error{}); line) {
      part.last_seq = std::max(part.first_seq, line->seq);
      part.last_ns = line->t_ns;
    }
  }

  std::string path_, last_;
  std::vector<FoundPart> parts_;
  RunLineReader reader_;
  std::uint64_t line_ = 0;
  bool first_known_ = false;
};

bool has_line(const FilePart& part, std::string_view wanted) {
  bool found = false;
  RunFile file(part.path, part.begin, part.end, part.line);
  (void)file.poll_text([&](std::string_view text, std::uint64_t) { found = found || text == wanted; });
  return found;
}

/// The name that the library gives to the process's file begins so.
bool is_named_after(const FilePart& part, const ProcessId& id) {
  const std::string name = fmt::format("{}-{}-{}", id.host, id.rank, id.pid);
  return std::filesystem::path(part.path).filename().string().starts_with(name);
}

/// How well `part` fits where `process` has no lines: 0: not at all; more where its neighbours by `seq` are there, and
/// where its file is named after the process.
int fit(const RunProcess& process, const ProcessId& id, const FilePart& part) {
  bool adjacent = false;
  for (const FilePart& other : process.parts) {
    const bool before = other.last_seq<part.first_seq, after = other.first_seq> part.last_seq;
    if ((!before && !after) || (before && other.last_ns > part.first_ns) || (after && other.first_ns < part.last_ns))
      return 0;
    adjacent = adjacent || other.last_seq + 1 == part.first_seq || part.last_seq + 1 == other.first_seq;
  }
  return 1 + int{adjacent} + 2 * int{is_named_after(part, id)};
}

/// The process that a part without a start line belongs to; nullptr: none, or several.
RunProcess* owner_of(const FoundPart& found, std::map<ProcessId, RunProcess>& processes) {
  if (found.first_line.empty()) return nullptr;
  const FilePart& part = found.part;
  for (auto& [id, process] : processes)
    for (const FilePart& other : process.parts)
      if (other.first_seq <= part.first_seq && part.first_seq <= other.last_seq && has_line(other, found.first_line))
        return &process;
  RunProcess* best = nullptr;
  int best_fit = 0;
  for (auto& [id, process] : processes) {
    const int fits = fit(process, id, part);
    if (fits > best_fit)
      best = &process;
    else if (fits == best_fit)
      best = nullptr;
    best_fit = std::max(best_fit, fits);
  }
  return best;
}

}  // namespace

FileBegin begin_of_file(const std::string& path) {
  FileBegin begin;
  constexpr std::uint64_t kEnough = 64 * 1024;
  RunFile file(path, 0, kEnough, 0);
  bool start_seen = false, line_seen = false;
  (void)file.poll([&](RunLine&& line) {
    if (const auto* run = std::get_if<RunInfo>(&line.what)) {
      if (!start_seen && !line_seen) begin.id = ProcessId(*run);
      start_seen = true;
    } else if (!line_seen) {
      begin.seq = line.seq;
      line_seen = true;
    }
  });
  return begin;
}

std::vector<RunProcess> find_processes(const std::vector<std::string>& paths, std::vector<std::string>& failures) {
  std::map<ProcessId, RunProcess> known;
  std::vector<RunProcess> all;
  std::vector<FoundPart> headless;
  for (const std::string& path : paths) {
    PartFinder finder(path);
    RunFile file(path, RunFile::From::kBeginning);
    const auto read = file.poll_text([&](std::string_view text, std::uint64_t begin) { finder.take(text, begin); });
    if (!read) failures.push_back(read.error().message);
    std::vector<FoundPart> parts = finder.finish();
    if (read && parts.empty()) all.push_back({{{.path = path}}, {}});  // its reader says what is wrong with it
    for (FoundPart& found : parts) {
      if (found.id)
        known[*found.id].parts.push_back(std::move(found.part));
      else
        headless.push_back(std::move(found));
    }
  }
  for (FoundPart& found : headless) {
    if (RunProcess* process = owner_of(found, known)) {
      process->remarks.push_back(fmt::format("{}: no start line; by its lines it is a piece of {}", found.part.path,
                                             process->parts.front().path));
      process->parts.push_back(std::move(found.part));
    } else {
      const auto twin = std::ranges::find_if(all, [&](const RunProcess& other) {
        return !found.first_line.empty() && has_line(other.parts.front(), found.first_line);
      });
      if (twin != all.end())
        twin->parts.push_back(std::move(found.part));
      else
        all.push_back({{std::move(found.part)}, {}});
    }
  }
  for (auto& [id, process] : known) {
    const auto order = [&id = id](const FilePart& part) {
      return std::tuple(part.first_seq, !is_named_after(part, id), part.path, part.begin);
    };
    std::ranges::sort(process.parts, {}, order);
    all.push_back(std::move(process));
  }
  std::ranges::stable_sort(all, {},
                           [](const RunProcess& p) { return std::pair(p.parts.front().path, p.parts.front().begin); });
  return all;
}

Result<RunHistory> read_process(const RunProcess& process) {
  ProcessLines lines;
  for (const FilePart& part : process.parts)
    lines.add({RunFile(part.path, part.begin, part.end, part.line), part.first_seq, part.line});
  HistoryBuilder builder(process.parts.front().path);
  lines.poll([&builder](RunLine&& line) { builder.take(std::move(line)); });
  const bool any = builder.any();
  RunHistory history = builder.finish();
  std::vector<std::string> said = lines.remarks();
  if (const std::uint64_t missing = lines.seen().missing(); missing != 0)
    said.push_back(
        fmt::format("{}: {} lines are missing (seq {}){}", history.source, missing, lines.seen().missing_text(),
                    history.end ? "; its end line has the whole run" : ": their windows are not in the sums"));
  if (!any) {
    const std::string& failure = lines.sources.front().failure;
    if (!failure.empty()) return Error{failure};
    return Error{fmt::format("{}: {}", history.source, said.empty() ? "holds no line of a run" : said.front())};
  }
  history.oddities.insert(history.oddities.begin(), said.begin(), said.end());
  history.oddities.insert(history.oddities.end(), process.remarks.begin(), process.remarks.end());
  return history;
}

}  // namespace mfu
