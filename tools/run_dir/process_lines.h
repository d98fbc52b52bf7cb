// The lines of one process, out of every file and piece of a file that holds some.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/run_dir/run_file.h"
#include "tools/run_dir/seq_set.h"

namespace mfu {

/// Which process wrote a line, by its start line. Never by a file's name or inode: both change.
struct ProcessId {
  std::string host;
  std::int64_t rank = 0, pid = 0;
  TimeNs start_ns = 0;  ///< UTC

  explicit ProcessId(const RunInfo& run) : host(run.host), rank(run.rank), pid(run.pid), start_ns(run.t_ns) {}
  auto operator<=>(const ProcessId&) const = default;
};

/// Hands over each line once, by its `seq`, however often the files have it: `mfu report`, `compare`, `top` and `serve`
/// read processes through this. One thread.
class ProcessLines {
 public:
  struct Source {
    RunFile file;
    std::uint64_t first_seq = 0;  ///< of its lines behind the start line
    std::uint64_t line = 0;       ///< of the file, where the part begins
    std::uint64_t fresh = 0;      ///< lines that were new
    std::uint64_t again = 0;      ///< lines that came before, here or in another source
    std::uint64_t foreign = 0;    ///< lines of another process, behind its start line
    bool another = false;         ///< the lines that come now are such
    bool made_anew = false;       ///< its lines may be another process's since it was added
    bool listed = true;           ///< for its reader: it is still in the directory
    std::string failure = {};     ///< of the last poll
  };

  /// None: no start line was seen yet; the first one that comes decides.
  std::optional<ProcessId> id;
  /// In order of their first lines.
  std::vector<Source> sources;

  void add(Source source);
  /// Reads what is new in every source. Start lines are handed over each time. \return lines that were new.
  std::size_t poll(const std::function<void(RunLine&&)>& on_line);
  /// The last source that had new lines; nullptr: none.
  [[nodiscard]] const Source* used() const noexcept;
  /// The problems met, and how the sources were put together: one line each.
  [[nodiscard]] std::vector<std::string> remarks() const;
  [[nodiscard]] const SeqSet& seen() const noexcept { return seen_; }

 private:
  SeqSet seen_;
};

}  // namespace mfu
