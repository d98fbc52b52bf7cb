// Files of ranks that never ran, line by line, by clocks that the test sets.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/rows/region_summary.h"
#include "core/sinks/sink_jsonl.h"

namespace mfu::testing_run {

class Directory {
 public:
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mfu-job-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline constexpr TimeNs kBegin = 1'795'000'000 * kNsPerSecond;
inline constexpr double kPeak = 1e15, kBandwidth = 3e12;

/// One rank's file. Times are seconds after kBegin by the clock of its host.
class FakeRank {
 public:
  FakeRank(const Directory& directory, std::int64_t rank, std::string host = "node0", double ahead_s = 0,
           std::int64_t world = 64, std::int64_t pid = 0)
      : path_(directory.path() + "/" + host + "-" + std::to_string(rank) + "-" + std::to_string(pid) + ".jsonl"),
        host_(std::move(host)),
        rank_(rank),
        world_(world),
        pid_(pid),
        ahead_ns_(static_cast<DurationNs>(ahead_s * 1e9)) {}

  void start(double at_s, int devices = 1, std::string_view config = "{}") {
    std::string list;
    for (int d = 0; d < devices; ++d)
      list += (d != 0 ? "," : "") + std::string(R"({"device":)") + std::to_string(d) + R"(,"name":"GPU","uuid":"U)" +
              std::to_string(d) + R"(","peak_flop_per_s":)" + std::to_string(peak) + R"(,"peak_bytes_per_s":3e12})";
    line("start", at_s,
         R"("host":")" + host_ + R"(","pid":)" + std::to_string(pid_) + R"(,"rank":)" + std::to_string(rank_) +
             R"(,"world":)" + std::to_string(world_) + R"(,"devices":[)" + list + R"(],"config":)" +
             std::string(config));
  }
  /// One window: its regions, `total` last.
  void window(double at_s, std::vector<RegionSummary> regions, double length_s = 10) {
    for (RegionSummary& r : regions) {
      r.window = {time(at_s), time(at_s + length_s)};
      const std::string json = region_json(r);
      line("window", at_s + length_s, json.substr(1, json.size() - 2));
    }
  }
  void end(double at_s) { line("end", at_s, R"("t0_ns":0,"t1_ns":1,"regions":[],"counters":{})"); }
  void text(std::string_view raw) { std::ofstream(path_, std::ios::app) << raw; }
  [[nodiscard]] const std::string& path() const { return path_; }

  double peak = kPeak;

 private:
  [[nodiscard]] TimeNs time(double at_s) const { return kBegin + static_cast<DurationNs>(at_s * 1e9) + ahead_ns_; }
  void line(const char* type, double at_s, const std::string& rest) {
    text(std::string(R"({"v":1,"type":")") + type + R"(","t_ns":)" + std::to_string(time(at_s)) + R"(,"seq":)" +
         std::to_string(seq_++) + "," + rest + "}\n");
  }

  std::string path_, host_;
  std::int64_t rank_, world_, pid_;
  DurationNs ahead_ns_;
  std::uint64_t seq_ = 0;
};

/// A region of a window of 10 s: `comm_s` of it communication that shows, `flop` done, the rest matmul.
inline RegionSummary region(std::string name, double flop, double comm_s = 0, std::uint64_t comm_kernels = 0,
                            double comm_sum_s = 0, double elapsed_s = 10) {
  const auto ns = [](double s) { return static_cast<DurationNs>(s * 1e9 + 0.5); };
  RegionSummary r;
  r.region = std::move(name);
  r.device = 0;
  r.instances = 10;
  r.elapsed_ns = ns(elapsed_s);
  r.busy_ns = ns(elapsed_s);
  r.kernel_sum_ns = ns(elapsed_s);
  r.time_ns[static_cast<std::size_t>(TimeClass::kComm)] = ns(comm_s);
  r.time_ns[static_cast<std::size_t>(TimeClass::kMatmul)] = ns(elapsed_s) - ns(comm_s);
  r.comm_kernels = comm_kernels;
  r.comm_sum_ns = ns(comm_sum_s);
  r.flop = flop;
  r.hfu_flop = flop;
  r.mfu = r.hfu = flop / (kPeak * elapsed_s);
  return r;
}

}  // namespace mfu::testing_run
