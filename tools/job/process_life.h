// The time of one process of a job by regions, checkpoints and stalls, as its windows say.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rows/duration_histogram.h"
#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"

namespace mfu {

/// Whether the name of a region or of a function is one of saving a checkpoint: `checkpoint`, `save_model`,
/// `torch.save`.
[[nodiscard]] bool saves_checkpoint(std::string_view name) noexcept;
/// The same of a region, whose name a person gave: any that begins with `save` is one as well.
[[nodiscard]] bool is_checkpoint(std::string_view region) noexcept;

/// One process, by its start line and its windows in their order. Events may come before the windows of their time.
struct ProcessLife {
  /// Time in a region, somewhere in windows side by side.
  struct Stretch {
    Interval in;
    DurationNs elapsed_ns = 0;  ///< mean of the devices
    double flop = 0;            ///< of all devices [FLOP]
    std::uint64_t times = 1;    ///< stretches that became this one; between two of them lay a window without any
  };
  struct Region {
    TimeNs first_ns = 0;  ///< begin of its first instance, to a window
    Stretch all;
    DurationNs covered_ns = 0;   ///< of its time, in windows whose FLOP are known
    std::vector<Stretch> parts;  ///< of `all`, in their order; the older ones become one where there are too many
    std::vector<std::pair<DurationNs, std::uint64_t>> first_windows;  ///< elapsed time, and instances that ended
    DurationHistogram means;                                          ///< of an instance, a window each

    /// \param joins in windows side by side it is one stretch.
    void add(const Stretch& now, bool flop_known, std::uint64_t instances, bool joins);
    /// Of its first windows, the time beyond what their instances take by the median.
    [[nodiscard]] DurationNs warm_up_ns() const;
  };

  /// Windows in which much was copied to the host between regions, and those without a region behind them.
  struct Copied {
    Interval span;
    DurationNs outside_ns = 0;  ///< of it, time outside of every region
    double bytes = 0;           ///< [B]
  };

  RunInfo run;
  double params = 0;  ///< of the model; 0: unknown
  Interval span;
  bool ended = false;  ///< by its end line
  DurationNs longest_window_ns = 0;
  std::vector<Interval> stalls;  ///< one that lasts has no end
  std::vector<Copied> copied;
  /// By name; all passes of a server are `pass`, every kind of saving `checkpoint`, of evaluation `eval`.
  std::map<std::string, Region, std::less<>> regions;

  void start(const RunInfo& run);
  void event(const RunEvent& event);
  void window(const WindowSummary& window);
  void end(TimeNs at_ns);

 private:
  void stalled_since(TimeNs since_ns);
  void note_copied(const Interval& window, DurationNs outside_ns, double bytes, bool in_regions);
};

}  // namespace mfu
