// A job as its run directories show it: every rank, kept up to date without reading anything twice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/job/clocks.h"
#include "tools/job/life.h"
#include "tools/job/rank.h"
#include "tools/run_dir/run_file.h"
#include "tools/run_dir/run_processes.h"

namespace mfu {

/// Follows the files of one or more run directories. One thread.
///
/// A process is what its start line says: its host, rank, pid and start. Copies and pieces of its file are one rank, of
/// which each line counts once by its `seq`.
///
/// A refresh costs one stat per file, and reading of what was appended. Ranks are compared by their own clocks only
/// where clocks can be trusted; see `stale` below.
///
/// A rank without an end line is stale when nothing came from it for more than three of its windows:
/// - while this reader watched, by this machine's monotonic clock; or
/// - by its last line's time (less the skew of its host's clock), when that lies that far behind the newest of the job
/// AND the time between its own first
///   and last line falls as far short of the longest in the job. The second difference is of one clock each, so a clock
///   that is wrong does not make a rank stale; the first keeps late starters alive; or
/// - with the whole job, when both the newest line and its file are older than ten windows and ten minutes.
/// The last two only until the file is seen to grow.
class LiveJob {
 public:
  /// \param paths run directories, or files of one. \param from kTail where only what matters now is wanted; kBeginning
  /// where sums over the whole run are.
  LiveJob(std::vector<std::string> paths, RunFile::From from) : paths_(std::move(paths)), from_(from) {}
  /// Each line of a process passes `change` before it counts: made anew for each process.
  void change_lines_by(std::function<std::function<void(RunLine&)>()> change) { change_ = std::move(change); }

  /// \param gpu_hour price of a GPU for an hour; none: it is not known.
  void set_price(std::optional<double> gpu_hour) noexcept { gpu_hour_ = gpu_hour; }
  [[nodiscard]] std::optional<double> price() const noexcept { return gpu_hour_; }

  /// \param mono_ns monotonic clock; \param utc_ns wall clock of this machine. \return whether anything changed; an
  /// Error when a path cannot be listed.
  [[nodiscard]] Result<bool> refresh(TimeNs mono_ns, TimeNs utc_ns);

  /// In order of rank, then host and pid.
  [[nodiscard]] const std::vector<const Rank*>& ranks() const noexcept { return sorted_; }
  [[nodiscard]] const Clocks& clocks() const noexcept { return clocks_; }
  /// How long the newest line of all lies back by this machine's clock [s]; 0 where the clocks do not allow to tell.
  [[nodiscard]] double silent_s() const noexcept { return silent_s_; }
  [[nodiscard]] bool reads_all() const noexcept { return from_ == RunFile::From::kBeginning; }
  /// So far; of a job that is read from its tail without the windows before that.
  [[nodiscard]] JobLife life() const;
  /// Files and lines that could not be read, and lines of newer versions: one line each.
  [[nodiscard]] std::vector<std::string> problems() const;
  [[nodiscard]] const std::vector<std::string>& paths() const noexcept { return paths_; }

 private:
  std::optional<double> gpu_hour_;
  /// One process: its file, and what it was copied, renamed or cut into.
  struct Entry {
    ProcessLines lines;
    std::function<void(RunLine&)> change;
    Rank rank;
    TimeNs grew_mono_ns = 0;  ///< when the last line was seen to come, or when it was first looked at
    bool looked_at = false;
    bool seen_growing = false;  ///< lines came after the first look
  };
  /// Times over all processes.
  struct JobTimes {
    TimeNs newest_line = 0;
    std::string newest_path;
    DurationNs longest_age = 0;
    DurationNs interval = 0;
  };

  Result<void> list(TimeNs mono_ns);
  void add_files(const std::vector<std::string>& paths, TimeNs mono_ns);
  bool poll(TimeNs mono_ns);
  bool poll_entry(Entry& entry, TimeNs mono_ns);
  bool read_anew(TimeNs mono_ns);
  void settle(TimeNs mono_ns, TimeNs utc_ns);
  JobTimes find_problems();
  void find_restarts();
  void find_silence(const JobTimes& times, TimeNs utc_ns);
  void find_clocks(DurationNs interval);
  void find_stale(const JobTimes& times, TimeNs mono_ns);

  std::vector<std::string> paths_;
  RunFile::From from_;
  std::function<std::function<void(RunLine&)>()> change_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;  ///< by the first file that showed them
  std::vector<const Rank*> sorted_;
  Clocks clocks_;
  std::vector<std::int64_t> directory_times_;  ///< mtime of each path when it was last listed
  TimeNs listed_mono_ns_ = 0;
  bool first_ = true;
  double silent_s_ = 0;
};

}  // namespace mfu
