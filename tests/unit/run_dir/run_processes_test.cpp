// What a run directory's files are made into does not change what they say: each line counts once, and what is missing
// is said.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "core/sinks/sink_jsonl.h"
#include "tools/run_dir/run_file.h"
#include "tools/run_dir/run_processes.h"

namespace mfu {
namespace {

using Lines = std::vector<std::string>;

constexpr TimeNs kFirstStart = 1'795'000'000 * kNsPerSecond;

/// What `process` wrote: a start line, windows of two rows each, an end line where it ended.
Lines lines_of(int process, int windows, bool ended) {
  const TimeNs start = kFirstStart + process * kNsPerSecond;
  std::uint64_t seq = 0;
  Lines lines;
  const auto add = [&](const char* type, TimeNs t_ns, const std::string& rest) {
    lines.push_back(std::string(R"({"v": 1, "type": ")") + type + R"(", "t_ns": )" + std::to_string(t_ns) +
                    R"(, "seq": )" + std::to_string(seq++) + ", " + rest + "}");
  };
  add("start", start,
      R"("host": "h", "pid": )" + std::to_string(100 + process) + R"(, "rank": )" + std::to_string(process) +
          R"(, "world": 3, "devices": [])");
  for (int w = 0; w < windows; ++w) {
    RegionSummary row;
    row.window = {start + w * kNsPerSecond, start + (w + 1) * kNsPerSecond};
    row.instances = static_cast<std::uint64_t>(1 + process + w % 3);
    row.elapsed_ns = kNsPerSecond;
    for (const char* region : {"step", "total"}) {
      row.region = region;
      const std::string json = region_json(row);
      add("window", row.window.end_ns + process, json.substr(1, json.size() - 2));
    }
  }
  if (ended) add("end", start + windows * kNsPerSecond, R"("t0_ns": 1, "t1_ns": 2, "regions": [], "counters": {})");
  return lines;
}

class RunProcessesTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("mfu-pieces-" + std::to_string(::getpid()));
    std::filesystem::create_directory(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const Lines& lines) {
    std::ofstream file(directory_ + "/" + name);
    for (const std::string& line : lines) file << line << '\n';
  }

  struct Read {
    std::map<std::int64_t, std::uint64_t> steps;  ///< by rank: instances of `step`, by the windows
    std::map<std::int64_t, std::size_t> windows;
    std::size_t processes = 0, ended = 0;
    std::vector<std::string> said;

    [[nodiscard]] bool says(std::string_view words) const {
      return std::ranges::any_of(said, [&](const std::string& line) { return line.find(words) != std::string::npos; });
    }
  };
  Read read() {
    Read all;
    std::vector<std::string> failures;
    for (const RunProcess& process : find_processes(list_run_files(directory_).value(), failures)) {
      const Result<RunHistory> history = read_process(process);
      EXPECT_TRUE(history) << history.error().message;
      if (!history) continue;
      ++all.processes;
      all.ended += history->end.has_value() ? 1 : 0;
      all.windows[history->run.rank] += history->windows.size();
      for (const WindowSummary& window : history->windows)
        for (const RegionSummary& row : window.regions)
          if (row.region == "step") all.steps[history->run.rank] += row.instances;
      all.said.insert(all.said.end(), history->oddities.begin(), history->oddities.end());
    }
    EXPECT_TRUE(failures.empty());
    return all;
  }

  std::string directory_;
};

Lines joined(const Lines& a, const Lines& b) {
  Lines both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

Lines part(const Lines& lines, std::size_t begin, std::size_t end) {
  const auto at = [&](std::size_t i) { return lines.begin() + static_cast<std::ptrdiff_t>(std::min(i, lines.size())); };
  return {at(begin), at(end)};
}

TEST_F(RunProcessesTest, ACopyCountsOnceAndIsSaid) {
  const Lines lines = lines_of(0, 5, true);
  write("h-0-100.jsonl", lines);
  const Read alone = read();
  EXPECT_TRUE(alone.said.empty());
  write("copy.jsonl", lines);
  const Read both = read();
  EXPECT_EQ(both.processes, 1U);
  EXPECT_EQ(both.steps, alone.steps);
  EXPECT_TRUE(both.says("copy.jsonl: nothing but what"));
}

TEST_F(RunProcessesTest, PiecesWithAStartLineEachAreOneProcess) {
  const Lines lines = lines_of(0, 6, true);
  write("h-0-100.jsonl", part(lines, 0, 1));
  for (std::size_t at = 1; at < lines.size(); at += 2)
    write("h-0-100-" + std::to_string(20 - at) + ".jsonl", joined({lines[0]}, part(lines, at, at + 2)));
  const Read pieces = read();
  EXPECT_EQ(pieces.processes, 1U);
  EXPECT_EQ(pieces.ended, 1U);
  EXPECT_EQ(pieces.windows.at(0), 6U);
  EXPECT_EQ(pieces.steps.at(0), 1U + 2 + 3 + 1 + 2 + 3);
  EXPECT_TRUE(pieces.says("put together"));
}

TEST_F(RunProcessesTest, TwoProcessesInOneFileAreTwo) {
  write("all.jsonl", joined(lines_of(0, 3, true), lines_of(1, 3, true)));
  const Read both = read();
  EXPECT_EQ(both.processes, 2U);
  EXPECT_EQ(both.steps.at(0), 1U + 2 + 3);
  EXPECT_EQ(both.steps.at(1), 2U + 3 + 4);
}

TEST_F(RunProcessesTest, RepeatedLinesCountOnceAndMissingOnesAreSaid) {
  const Lines lines = lines_of(0, 4, false);
  Lines twice{lines[0]};
  for (std::size_t i = 1; i < lines.size(); ++i) twice.insert(twice.end(), 2, lines[i]);
  write("h-0-100.jsonl", twice);
  const Read repeated = read();
  EXPECT_EQ(repeated.steps.at(0), 1U + 2 + 3 + 1);
  EXPECT_EQ(repeated.windows.at(0), 4U);
  EXPECT_TRUE(repeated.says("8 lines came twice"));
  write("h-0-100.jsonl", joined(part(lines, 0, 3), part(lines, 5, 20)));
  const Read gap = read();
  EXPECT_EQ(gap.steps.at(0), 1U + 3 + 1);
  EXPECT_TRUE(gap.says("2 lines are missing (seq 3-4): their windows are not in the sums"));
}

// Any cutting, copying, renaming, repeating and putting together.
TEST_F(RunProcessesTest, WhateverIsDoneToTheFilesTheTotalsStayOrTheGapIsSaid) {
  std::uint64_t lost_and_said = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
    std::vector<Lines> files;
    for (int process = 0; process < 3; ++process)
      files.push_back(lines_of(process, 2 + static_cast<int>(pick(6)), pick(2) == 0));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
    for (std::size_t i = 0; i < files.size(); ++i)
      write("h-" + std::to_string(i) + "-" + std::to_string(100 + i) + ".jsonl", files[i]);
    const Read before = read();
    bool dropped = false;
    for (std::size_t change = 0; change < 1 + pick(5); ++change) {
      const std::size_t at = pick(files.size());
      const Lines file = files[at];
      switch (pick(5)) {
        case 0:  // a copy, of all or of the beginning
          files.push_back(part(file, 0, 1 + pick(file.size())));
          break;
        case 1: {  // cut in two; the later part repeats the start line, as the library's own pieces do
          const std::size_t cut = 1 + pick(file.size());
          files[at] = part(file, 0, cut);
          // Only where the line that cuts is of the process that the file begins with.
          const bool single = std::ranges::count_if(file, [](const std::string& l) {
                                return l.find("\"start\"") != std::string::npos;
                              }) == 1;
          files.push_back(single ? joined({file[0]}, part(file, cut, file.size())) : part(file, cut, file.size()));
          if (!single) files[at] = file;
          break;
        }
        case 2:  // put together
          files.push_back(joined(file, files[pick(files.size())]));
          break;
        case 3: {  // lines come twice
          Lines again;
          for (const std::string& line : file) again.insert(again.end(), 1 + pick(2), line);
          files[at] = again;
          break;
        }
        default: {  // one is lost
          if (file.size() < 4 || files.size() != 3) break;
          const std::size_t lost = 1 + pick(file.size() - 2);
          files[at].erase(files[at].begin() + static_cast<std::ptrdiff_t>(lost));
          dropped = dropped || std::ranges::find(files[at], file[lost]) == files[at].end();
        }
      }
    }
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
    std::ranges::shuffle(files, random);
    std::erase_if(files, [](const Lines& lines) { return lines.empty(); });
    for (std::size_t i = 0; i < files.size(); ++i) write(std::to_string(i) + ".jsonl", files[i]);
    const Read after = read();
    EXPECT_EQ(after.processes, 3U);
    if (dropped && after.says("missing")) {
      ++lost_and_said;
      continue;
    }
    EXPECT_EQ(after.steps, before.steps);
    EXPECT_EQ(after.windows, before.windows);
    EXPECT_EQ(after.ended, before.ended);
  }
  EXPECT_GT(lost_and_said, 5U);
}

TEST_F(RunProcessesTest, APieceWithoutAStartLineGoesToTheProcessThatMissesIt) {
  const Lines lines = lines_of(0, 6, true);
  const auto check = [&](const char* what) {
    SCOPED_TRACE(what);
    const Read read_now = read();
    EXPECT_EQ(read_now.processes, 2U);
    EXPECT_EQ(read_now.steps.at(0), 1U + 2 + 3 + 1 + 2 + 3);
    EXPECT_TRUE(read_now.says("no start line; by its lines it is a piece of"));
  };
  write("h-1-101.jsonl", lines_of(1, 3, false));
  write("h-0-100.jsonl", part(lines, 0, 6));
  write("h-0-100.b.jsonl", part(lines, 6, 99));
  check("its end");
  write("h-0-100.jsonl", lines);
  write("h-0-100.b.jsonl", part(lines, 4, 8));
  check("a copy of its middle");
}

}  // namespace
}  // namespace mfu
