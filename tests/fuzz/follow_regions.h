// What every trace, however odd, must survive after it was read: the replay through the Ledger, and queries.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/config/config.h"
#include "tools/replay/process_replay.h"
#include "tools/replay/trace_query.h"

/// Aborts when a region's elapsed time is not the sum of its classes, or launches do not add up.
inline void follow_regions(const mfu::Trace& trace) {
  static const mfu::Config config = mfu::load_config([](const char*) -> const char* { return nullptr; }, nullptr);
  for (const mfu::ProcessRegions& process : mfu::trace_regions(trace, config)) {
    for (const mfu::RegionSummary& region : process.whole.regions) {
      mfu::DurationNs sum = 0;
      for (const mfu::DurationNs t : region.time_ns) sum += t;
      if (sum != region.elapsed_ns || region.busy_ns > region.kernel_sum_ns) std::abort();
    }
    const mfu::LaunchAccount& l = process.whole.launches;
    if (l.seen != l.attributed + l.outside + l.unattributed + l.dropped) std::abort();
  }
  if (trace.ranges.empty()) return;
  mfu::TraceQuery query;
  query.range = trace.strings.at(trace.ranges.front().name);
  query.kernel = ".";
  query.flop = 1e9;
  const auto answers = mfu::answer_query(trace, config, query);
  if (answers.ok() ? mfu::query_json(query, *answers).empty() : answers.error().message.empty()) std::abort();
}
