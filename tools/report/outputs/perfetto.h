// Windows as a Chrome trace.
#pragma once

#include <iosfwd>
#include <optional>

#include "tools/report/outputs/process_writer.h"

namespace mfu {

/// Chrome's trace format, for Perfetto and chrome://tracing: one process per rank, a slice per region and window, and
/// the counters MFU %, MBU % and TFLOP/s. Times [us] are from the first window on, at `baseTimeNanoseconds`.
class PerfettoWriter final : public ProcessWriter {
 public:
  explicit PerfettoWriter(std::ostream& out);
  void process(const RunHistory& history) override;
  void finish(const Job& job) override;

 private:
  std::ostream& out_;
  bool first_ = true;
  std::optional<TimeNs> base_ns_;
  std::int64_t processes_ = 0;
};

}  // namespace mfu
