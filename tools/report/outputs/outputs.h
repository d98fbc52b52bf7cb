// What a report can be besides a page: JSON, CSV, a Chrome trace, Markdown, a few lines of text.
#pragma once

#include <iosfwd>
#include <string>

#include "tools/job/job_report.h"

namespace mfu {

/// Takes the processes one after the other and writes as it goes. Then, once, the job.
class ProcessWriter {
 public:
  virtual ~ProcessWriter() = default;
  virtual void process(const RunHistory& history) = 0;
  virtual void finish(const Job& job) = 0;
};

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

/// One row per region, device and window (kCsvHeader), times in seconds, empty where unknown; RFC 4180.
class CsvWriter final : public ProcessWriter {
 public:
  explicit CsvWriter(std::ostream& out);
  void process(const RunHistory& history) override;
  void finish(const Job&) override {}

 private:
  std::ostream& out_;
};
/// Columns are only ever added, at the end.
extern const char* const kCsvHeader;

/// Chrome's trace format, for Perfetto and chrome://tracing: one process per rank, a slice per region and window, and
/// the counters MFU %, MBU % and TFLOP/s. Times [us] are from the first window on; `baseTimeNanoseconds` says where
/// that was.
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

/// {"regions": [keys of a window, and "devices", "processes", "tokens_per_s", "each_s", "flop_at_peak",
/// "bytes_at_peak", "counted_s", "rows_left_out", "why_no_mfu", "words"], "processes", "complete", "t0_ns", "t1_ns",
/// "launches", "self", "counters", "warnings"}
[[nodiscard]] std::string job_json(const Job& job);

[[nodiscard]] std::string job_markdown(const Job& job);

/// The table of the log's end, and in words where the time went.
[[nodiscard]] std::string job_text(const Job& job);

}  // namespace mfu
