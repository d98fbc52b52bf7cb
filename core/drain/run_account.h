// The account of one run: ledger, detector and drain, wired together once for the live library and for replay.
#pragma once

#include <optional>

#include "core/account/ledger.h"
#include "core/drain/detected_regions.h"
#include "core/drain/drain.h"
#include "core/drain/graph_inside.h"
#include "core/drain/program_regions.h"

namespace mfu {

/// [mfu-drain] What comes in goes to drain(); windows come out through the callback, each with the launch account, what
/// was detected and the counters of that moment.
class RunAccount {
 public:
  /// Parts that the account works on. All of them outlive it.
  struct Parts {
    const RegionRules& rules;
    Attribution& attribution;
    KernelNames& names;
    const ContextDevices& contexts;
    TickClock& clock;
    Counters& counters;
  };
  struct Options {
    LedgerOptions ledger;
    const FlopsModel* model = nullptr;  ///< nullptr: times only
    Workload workload;
    const ProductTable* products = nullptr;     ///< products of records; nullptr: they carry none
    AccountObserver* observer = nullptr;        ///< outlives the account
    std::optional<DetectionOptions> detection;  ///< none: work that no range owns stays outside
    bool by_calls = false;                      ///< see Drain
    bool program = false;                       ///< facts of the program's interpreter may come
    bool split_graphs = false;                  ///< graphs that are timed as a whole, into their nodes
  };

  RunAccount(const Parts& parts, const Options& options, Ledger::WindowCallback on_window);
  RunAccount(const RunAccount&) = delete;
  RunAccount& operator=(const RunAccount&) = delete;

  [[nodiscard]] Ledger& ledger() noexcept { return ledger_; }
  [[nodiscard]] Drain& drain() noexcept { return *drain_; }
  [[nodiscard]] DetectedRegions* detected() noexcept { return detected_ ? &*detected_ : nullptr; }
  /// How much of the time of graphs is known from the inside; none: they are not split.
  [[nodiscard]] const GraphInside* graphs() const noexcept { return graphs_ ? &*graphs_ : nullptr; }
  [[nodiscard]] ProgramRegions* program() noexcept { return program_ ? &*program_ : nullptr; }
  [[nodiscard]] const Ledger& ledger() const noexcept { return ledger_; }
  [[nodiscard]] const Drain& drain() const noexcept { return *drain_; }

  /// How often a tick is due for windows of this length, so that each is written soon after its end.
  [[nodiscard]] static DurationNs tick_period(DurationNs window_ns) noexcept;

 private:
  void close_window(WindowSummary&& window);

  Counters& counters_;
  Ledger::WindowCallback on_window_;
  Ledger ledger_;
  std::optional<DetectedRegions> detected_;
  std::optional<ProgramRegions> program_;
  std::optional<GraphInside> graphs_;
  std::optional<Drain> drain_;
};

}  // namespace mfu
