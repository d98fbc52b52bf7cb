// An output that is written while processes are read, so that they need not all be in memory.
#pragma once

#include "tools/job/job_report.h"

namespace mfu {

/// Takes the processes one after the other and writes as it goes. Then, once, the job.
class ProcessWriter {
 public:
  virtual ~ProcessWriter() = default;
  virtual void process(const RunHistory& history) = 0;
  virtual void finish(const Job& job) = 0;
};

}  // namespace mfu
