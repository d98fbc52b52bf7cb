#include "core/drain/run_account.h"

#include <algorithm>
#include <string>
#include <utility>

namespace mfu {

RunAccount::RunAccount(const Parts& parts, const Options& options, Ledger::WindowCallback on_window)
    : counters_(parts.counters),
      on_window_(std::move(on_window)),
      ledger_(parts.rules, options.model, options.workload, parts.names, parts.counters, options.ledger,
              [this](WindowSummary&& window) { close_window(std::move(window)); }) {
  if (options.products != nullptr) ledger_.watch_products(*options.products);
  if (options.observer != nullptr) ledger_.observe(options.observer);
  if (options.detection) detected_.emplace(ledger_, parts.rules, parts.names, *options.detection);
  if (options.split_graphs) graphs_.emplace(parts.attribution.graph_contents(), parts.names);
  drain_.emplace(parts.attribution, ledger_, parts.clock, parts.contexts, parts.counters, detected(), options.by_calls,
                 graphs_ ? &*graphs_ : nullptr);
  if (!options.program || options.by_calls) return;
  program_.emplace(ledger_, parts.rules, options.model, detected());
  drain_->report_to(*program_);
}

DurationNs RunAccount::tick_period(DurationNs window_ns) noexcept {
  return std::clamp<DurationNs>(window_ns / 4, 20'000'000, kNsPerSecond);
}

void RunAccount::close_window(WindowSummary&& window) {
  window.launches = drain_->account();
  window.settled = window.final_run || drain_->settled(window.window);
  if (graphs_ && graphs_->figures().graphs_ns != 0) {
    const GraphInside::Figures f = graphs_->figures();
    window.graphs = GraphTimes{seconds(f.graphs_ns), seconds(f.known_ns), f.error};
  }
  if (detected_) detected_->describe(window);
  for (std::size_t i = 0; i < kCounters; ++i)
    if (const std::uint64_t n = counters_.get(static_cast<Counter>(i)); n != 0)
      window.counters.emplace_back(std::string(kCounterNames[i]), n);
  on_window_(std::move(window));
}

}  // namespace mfu
