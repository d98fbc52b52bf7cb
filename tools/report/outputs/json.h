// A run as one JSON document.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "tools/report/outputs/process_writer.h"

namespace mfu {

/// {"v", "runs": [{"source", keys of the start line, "complete", keys of the end line, "events", "oddities",
/// "windows"}], "job": job_json}. `complete` false: no end line, `regions` are the sum of the windows, `launches` and
/// `self` are null.
class JsonWriter final : public ProcessWriter {
 public:
  explicit JsonWriter(std::ostream& out);
  void process(const RunHistory& history) override;
  void finish(const Job& job) override;

 private:
  std::ostream& out_;
  bool first_ = true;
};

/// {"regions": [keys of a window, and "devices", "processes", "tokens_per_s", "each_s", "flop_at_peak",
/// "bytes_at_peak", "counted_s", "rows_left_out", "why_no_mfu", "words"], "processes", "complete", "t0_ns", "t1_ns",
/// "launches", "self", "counters", "warnings"}
[[nodiscard]] nlohmann::ordered_json job_json(const Job& job);

}  // namespace mfu
