// Windows as CSV.
#pragma once

#include <iosfwd>
#include <string>

#include "tools/report/outputs/process_writer.h"

namespace mfu {

/// `source,host,rank,pid` and the columns of region_fields.h. Columns are only ever added, at the end.
[[nodiscard]] std::string csv_header();

/// One row per region, device and window, times in seconds, empty where unknown; RFC 4180.
class CsvWriter final : public ProcessWriter {
 public:
  explicit CsvWriter(std::ostream& out);
  void process(const RunHistory& history) override;
  void finish(const Job&) override {}

 private:
  std::ostream& out_;
};

}  // namespace mfu
