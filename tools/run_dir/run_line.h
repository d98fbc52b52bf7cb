// One line of a run directory's file, read back into the structures that it was written from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "core/base/result.h"
#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"

namespace mfu {

/// A line of type `window`: one region on one device.
struct WindowLine {
  RegionSummary region;
  std::vector<std::pair<std::string, std::uint64_t>> counters;  ///< on `total`: so far in the run
  std::optional<SelfCost> self;                                 ///< on `total`: so far in the run
  std::optional<Stall> stall = {};                              ///< on `total`: that lasts
  DurationNs next_ns = 0;  ///< on `total`: length of the next window where it is longer than usual [ns]; 0: it is not
};

/// A line of type `end`: the whole run, final_run set.
struct EndLine {
  WindowSummary whole;
};

/// A line of a type that this version does not know: not an error, fields and types are only ever added.
struct UnknownLine {
  std::string type;
};

struct RunLine {
  std::int64_t v = 1;
  TimeNs t_ns = 0;  ///< UTC
  std::uint64_t seq = 0;
  std::variant<RunInfo, WindowLine, RunEvent, EndLine, UnknownLine> what;
};

/// Reads lines; holds the parser's memory. Keys are those of docs/reference.md; unknown ones are passed over, missing
/// ones leave the default or the absence that null means.
class RunLineReader {
 public:
  RunLineReader();
  ~RunLineReader();
  RunLineReader(RunLineReader&&) noexcept;
  RunLineReader& operator=(RunLineReader&&) noexcept;

  /// \param text one line without its end. \return an Error that names the key, the value met and what was expected.
  [[nodiscard]] Result<RunLine> read(std::string_view text);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

/// The newest line version that this code was written for. Of newer lines the keys that are known are read.
inline constexpr std::int64_t kRunLineVersion = 1;

}  // namespace mfu
