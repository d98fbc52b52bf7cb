// Joules of each region: readings of energy counters and closed windows become the `energy` of their rows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/energy/energy_fit.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// A counter's state at a moment.
struct EnergyReading {
  double joules = 0;
  double error = 0;  ///< it may be so much behind the truth [J]
};

/// One span lies between two windows' ends at which the counter was read, so that it may be of several windows. The
/// row of the window that a span ends with has the joules of the whole span, and the tokens that they were spent on.
/// - A device's `total`: the difference of two readings.
/// - A region that is in no other: its mean watts at work and those of the idle device, each by its time. Both are of
///   EnergyFit, over the spans so far, or of the span alone where the region took nearly all of it.
/// A span in which regions overlapped, or times were missing, says nothing of regions.
class EnergyAccount {
 public:
  /// The counter of a device at the end of a window; nullopt: it was not read then, or gives nothing.
  using ReadCounter = std::function<std::optional<EnergyReading>(std::uint32_t device, TimeNs at)>;

  /// Fills `energy` of the rows of the next window, or of the whole run.
  void add(WindowSummary& window, const ReadCounter& read);

 private:
  /// Time and tokens of a region in a span.
  struct Use {
    double busy_s = 0, idle_s = 0;
    std::int64_t tokens = 0, output_tokens = 0;
    void add(const Use& more) noexcept;
  };
  struct Device {
    std::optional<EnergyReading> last;
    bool clean = true;  ///< of the span so far, times of regions are known and apart
    std::map<std::string, Use> span, run;
    std::map<std::string, Energy> counted;  ///< of the run so far, from the counter alone
    EnergyFit fit;
  };
  void add_times(const WindowSummary& window, std::uint32_t device, Device& of) const;
  void end_span(Device& of, const EnergyReading& now, std::map<std::string, Energy>& found);
  [[nodiscard]] std::optional<Energy> of_region(const Device& of, const std::string& region, const Use& use) const;
  [[nodiscard]] std::uint32_t kind_of(const std::string& region);

  std::map<std::uint32_t, Device> devices_;
  std::map<std::string, std::uint32_t> kinds_;
};

}  // namespace mfu
