// Closed windows: the one structure that every output format is made from.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/shape.h"
#include "core/base/units.h"
#include "core/kernels/kernel_traits.h"
#include "core/rows/duration_histogram.h"

namespace mfu {

/// The word that an output has for each value of an enum, in their order; empty: null.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kWords{};

template <typename Enum>
[[nodiscard]] constexpr std::string_view word(Enum value) noexcept {
  return kWords<Enum>[static_cast<std::size_t>(value)];
}

template <>
inline constexpr auto kWords<KernelClass> = std::to_array<std::string_view>({"gemm", "attention", "comm", "other"});

/// The classes of the waterfall, in order of precedence: a moment belongs to the first one that runs.
enum class TimeClass : std::uint8_t { kMatmul, kOther, kComm, kMemcpy, kIdle };
inline constexpr std::size_t kTimeClasses = 5;
/// `matmul`, `other`, `comm`, `memcpy`, `idle`: the keys of `time_s` and `lost`.
inline constexpr std::array<std::string_view, kTimeClasses> kTimeClassNames{"matmul", "other", "comm", "memcpy",
                                                                            "idle"};
template <>
inline constexpr auto kWords<TimeClass> = kTimeClassNames;

/// Time per class [ns]. Sums to the elapsed time it splits.
using ClassTimes = std::array<DurationNs, kTimeClasses>;

/// The idle time of a row, split twice: by how long the gap between two activities of the device was, and by where it
/// lay in the instance. Gaps end where a window or an instance does.
struct IdleGaps {
  static constexpr DurationNs kShort = 20'000, kMedium = 1'000'000;  ///< [ns]
  DurationNs under_20us = 0, under_1ms = 0, longer = 0;              ///< sum to the idle time
  /// Before the first activity of an instance, after the last one of the device before it ends, and the rest; sum to
  /// the idle time. Of the process: `inside` alone.
  DurationNs before = 0, inside = 0, after = 0;

  [[nodiscard]] DurationNs& of_length(DurationNs gap) noexcept {
    return gap < kShort ? under_20us : gap < kMedium ? under_1ms : longer;
  }
  [[nodiscard]] std::array<DurationNs, 3> by_length() const noexcept { return {under_20us, under_1ms, longer}; }
  /// Adds `more`, or with -1 takes it away.
  void add(const IdleGaps& more, int times = 1) noexcept {
    for (DurationNs IdleGaps::*const part : {&IdleGaps::under_20us, &IdleGaps::under_1ms, &IdleGaps::longer,
                                             &IdleGaps::before, &IdleGaps::inside, &IdleGaps::after})
      this->*part += times * more.*part;
  }
  /// Work that came late filled gaps: both splits sum to `idle` again.
  void fit(DurationNs idle) noexcept {
    for (const auto& parts : {std::array{&longer, &under_1ms, &under_20us}, std::array{&inside, &before, &after}}) {
      DurationNs excess = *parts[0] + *parts[1] + *parts[2] - idle;
      if (excess < 0) *parts[0] -= std::exchange(excess, 0);
      for (DurationNs* part : parts) {
        const DurationNs less = std::min(*part, excess);
        *part -= less;
        excess -= less;
      }
    }
  }
};

/// The work of the host while the GPU had nothing to do.
struct IdleCause {
  std::string cause;   ///< `DataLoader.__next__`, `launching`; empty: unknown
  std::string where;   ///< `train.py:57`; empty: unknown
  std::string thread;  ///< `main`, `other`; empty: unknown
  DurationNs ns = 0;
};

enum class Bound : std::uint8_t { kUnknown, kCompute, kMemory };
template <>
inline constexpr auto kWords<Bound> = std::to_array<std::string_view>({"", "compute", "memory"});

/// Who said that something is a region, in the order of trust.
enum class NamedBy : std::uint8_t { kNobody, kDetector, kInterpreter, kFramework, kRange };
template <>
inline constexpr auto kWords<NamedBy> = std::to_array<std::string_view>({"", "detector", "interpreter", "framework",
                                                                         "range"});

struct TopKernel {
  std::string name;  ///< demangled, at most 200 bytes
  KernelClass kernel_class = KernelClass::kOther;
  std::uint64_t count = 0;
  DurationNs sum_ns = 0;
};

/// The unit of a batch: a decode pass counts its sequences, a prefill or mixed pass its tokens.
enum class BatchUnit : std::uint8_t { kSequences, kTokens };
template <>
inline constexpr auto kWords<BatchUnit> = std::to_array<std::string_view>({"sequences", "tokens"});

/// The instances of a region whose batch is in one range: 1, 2, 3-4, 5-8, ... Whole instances, in the window that they
/// ended in, as in `RegionSummary::latency`.
struct BatchLatency {
  BatchUnit unit = BatchUnit::kSequences;
  std::int64_t batch_min = 0, batch_max = 0;  ///< both inclusive
  std::uint64_t instances = 0;
  std::int64_t tokens = 0;
  DurationNs elapsed_ns = 0;
  LatencySummary latency;          ///< by sequences: of a pass, as `inter_token`; by tokens: of an instance
  std::optional<double> flop;      ///< [FLOP]
  std::optional<double> bytes;     ///< [B]
  std::optional<double> mfu, mbu;  ///< ratios 0..1
};

/// An instance that took longer than most.
struct SlowInstance {
  std::uint64_t nth = 0;  ///< of its region on its device, in the order in which they ended; the run's first is 0
  TimeNs t0_ns = 0;       ///< its begin
  DurationNs elapsed_ns = 0;
  ClassTimes time_ns{};  ///< sums to elapsed_ns
  /// The class that took most beyond the mean of the row without its three slowest, and how much [ns].
  TimeClass lost_to = TimeClass::kIdle;
  DurationNs excess_ns = 0;
};

/// Where the FLOP of a region come from, most trusted first.
enum class FlopSource : std::uint8_t { kNone, kShape, kConfig, kDetected, kExecuted, kLowerBound };
template <>
inline constexpr auto kWords<FlopSource> = std::to_array<std::string_view>({"", "shape", "config", "detected",
                                                                            "executed", "lower_bound"});

/// The matmuls that really ran, as far as their sizes were seen.
struct ExecutedWork {
  double flop = 0;            ///< [FLOP]
  DurationNs covered_ns = 0;  ///< of matmul_ns, time of the matmul kernels whose sizes are known
  DurationNs matmul_ns = 0;   ///< of all matmul kernels, and of graphs recorded as one, which may be all matmul
  /// Time that `flop` takes at the peaks of the dtypes that the matmuls had; 0: no peak is known.
  DurationNs ideal_ns = 0;
  double tile_flop = 0;     ///< of products whose tiles are known: FLOP of all tiles, padding included [FLOP]
  DurationNs tiled_ns = 0;  ///< of covered_ns, time of these

  /// From this share on, HFU is worked out from it.
  static constexpr double kEnough = 0.9;
  /// Share of the matmul time whose FLOP are known, 0..1.
  [[nodiscard]] double coverage() const noexcept {
    return matmul_ns > 0 ? std::min(1.0, static_cast<double>(covered_ns) / static_cast<double>(matmul_ns)) : 0;
  }
  [[nodiscard]] bool enough() const noexcept { return ideal_ns > 0 && coverage() >= kEnough; }
};

/// Why matmuls took longer than the model's FLOP take at peak: `lost[kMatmul]` by cause, as fractions of the elapsed
/// time. core/account/gemm_loss.h says how.
struct GemmLoss {
  double padding = 0;    ///< FLOP that ran and are not the model's
  double tiles = 0;      ///< tiles that reach beyond the edge of their matrix
  double waves = 0;      ///< SMs without a tile while others compute their last one
  double shape = 0;      ///< the rest of the loss of the fastest call of each product; memory traffic is part of it
  double clock = 0;      ///< SM clock below the peak's
  double rest = 0;       ///< calls slower than the fastest of their product, and operands of a slower dtype
  double not_split = 0;  ///< kernels whose names say no tile, or whose call was not seen

  /// Makes the parts sum to `total`: `not_split` is what the others leave.
  void fit(double total) noexcept;
};
inline constexpr std::array kGemmLossParts{&GemmLoss::padding, &GemmLoss::tiles, &GemmLoss::waves,    &GemmLoss::shape,
                                           &GemmLoss::clock,   &GemmLoss::rest,  &GemmLoss::not_split};

inline void GemmLoss::fit(double total) noexcept {
  not_split = 0;
  double sum = 0;
  for (const auto part : kGemmLossParts) sum += this->*part;
  if (sum > total)
    for (const auto part : kGemmLossParts) this->*part *= total > 0 ? total / sum : 0;
  not_split = std::max(0.0, total - sum);
}

/// One kind of matmul in a row: a matrix of the model in one of its passes, attention, or a size.
struct Component {
  std::string name;  ///< `qkv`, `gate+up`, `attention`, ...; in x out where it is no matrix of the model; `other`
  std::string pass;  ///< `fwd`, `dgrad`, `wgrad`, `bwd`; empty: not known
  std::uint64_t calls = 0;
  std::uint64_t shapes = 0;          ///< distinct sizes
  DurationNs time_ns = 0;            ///< of its kernels, added up
  std::optional<double> flop;        ///< executed [FLOP]
  std::optional<double> flop_per_s;  ///< flop / time [FLOP/s]
  std::optional<double> of_peak;     ///< flop / (peak of its dtypes x time), 0..1
  Bound bound = Bound::kUnknown;     ///< FLOP / peak against bytes / bandwidth, each matrix once
  std::optional<GemmLoss> loss;      ///< of its time; with of_peak sums to 1. None where no kernel says a tile
};

/// A conclusion about the model or the program from the products that ran: one line for people.
struct Finding {
  std::string kind;  ///< `recomputation`, `padding`, `logits`, `expert_capacity`, `config`, `peak_dtype`,
                     ///< `not_seen`
  std::string text;
};

/// The detector's finding where no range named the region.
struct Detected {
  std::string kind;                   ///< `step`, `decode`, `prefill_or_mixed`, `iteration`
  std::uint64_t period_launches = 0;  ///< launches per instance, a graph launch being one
  std::string confidence;             ///< `high`, `medium`, `low`, `not_sure`
  std::uint64_t micro_steps = 0;      ///< passes per optimizer step; 0: not known
};

/// The figures of a region that add up by themselves.
struct RegionCounts {
  std::uint64_t instances = 0;  ///< that ended in the window
  std::uint64_t open = 0;       ///< still open, or still running on the device, at its end
  std::int64_t tokens = 0;
  DurationNs elapsed_ns = 0;
  DurationNs busy_ns = 0;  ///< union of its kernels
  DurationNs kernel_sum_ns = 0;
  std::uint64_t kernels = 0;
  std::uint64_t launches = 0;
  std::uint64_t untimed = 0;            ///< launches whose records carry no times; above 0: classes_known is false
  std::optional<double> to_host_bytes;  ///< of the process: copied to the host by launches outside of every region [B]
  std::uint64_t comm_kernels = 0;       ///< of the kernels, NCCL and the like
  DurationNs comm_sum_ns = 0;           ///< sum of their durations: waiting for the last rank to arrive is part of it
  DurationNs graph_sum_ns = 0;          ///< sum of graphs recorded as one: of kernels, copies and gaps of unknown class
  bool overlapped = false;              ///< another thread's top-level instance ran at the same time on the device
  ClassTimes time_ns{};                 ///< sums to elapsed_ns
  std::optional<IdleGaps> idle_gaps;    ///< of time_ns[kIdle]; none where classes are not known
};

enum class EnergyMethod : std::uint8_t { kNone, kCounter, kFit };
template <>
inline constexpr auto kWords<EnergyMethod> = std::to_array<std::string_view>({"", "counter", "fit"});

/// Energy that the board took for a row's work: memory and the idle chip are in it, and other processes' work; the
/// host, its network and its fans are not. Of the span of windows that ends with the row's window.
struct Energy {
  double joules = 0;
  double error = 0;  ///< the true value is within it, 95 times of 100 [J]
  EnergyMethod method = EnergyMethod::kNone;
  std::optional<double> idle_w;    ///< of the device while nothing runs [W]
  std::int64_t tokens = 0;         ///< that were processed in that span,
  std::int64_t output_tokens = 0;  ///< and of them those that decode passes made
};

/// The figures of a region's single instances.
struct RegionLatency {
  LatencySummary latency;              ///< of the instances that ended in the window
  LatencySummary inter_token;          ///< of their decode passes: elapsed / passes, once per pass; none elsewhere
  std::vector<BatchLatency> by_batch;  ///< ascending; only instances whose batch is known
  /// From the last activity of a prefill (or mixed) instance to the first of the next instance that decodes on the
  /// device, in the row of the latter; once per prefill.
  LatencySummary prefill_to_decode;
  /// Instances that decode, with a prefill between them and the one before; none: nothing decodes here.
  std::optional<std::uint64_t> after_prefill;
  std::vector<SlowInstance> slowest;  ///< longest first; none where none is much longer than the median

  /// Where the limits of single instances are not sure: their figures are dropped, the times of all together stay.
  void forget_single_instances() {
    latency = inter_token = prefill_to_decode = LatencySummary{};
    by_batch.clear();
    after_prefill.reset();
    slowest.clear();
  }
};

/// The work of a region by its model, and the rates that follow.
struct RegionWork {
  std::optional<double> flop;                     ///< model FLOP [FLOP]
  std::optional<double> hfu_flop;                 ///< plus recomputation [FLOP]
  std::optional<double> bytes;                    ///< bytes the model must move [B]
  std::optional<double> mfu, mfu_busy, hfu, mbu;  ///< ratios 0..1
  /// MFU against the rates of the dtypes that the matmuls had, where they had others than the peak's; 0..1.
  std::optional<double> mfu_mixed;
  std::optional<double> roofline_s;  ///< max(FLOP/peak, bytes/bandwidth) [s]
  Bound bound = Bound::kUnknown;
  std::optional<double> mfu_lower;  ///< bound from below, where tokens are known and the sequence length is not
  FlopSource flop_source = FlopSource::kNone;
  std::optional<double> mbu_lower;  ///< as mfu_lower
};

/// One region on one device (or all of the process's devices) over one window or the whole run. Its outputs are made
/// from the table in region_fields.h: a new member is a new row there.
struct RegionSummary : RegionCounts, RegionLatency, RegionWork {
  std::string region;                   ///< `total`: the process
  std::optional<std::uint32_t> device;  ///< index in this process; none: all devices together
  Interval window;
  std::optional<double> clock_ratio;  ///< SM clock at the window's end over the clock of the peak
  std::string suspect;                ///< why the figure is not to be believed; empty: nothing found
  bool classes_known = true;          ///< false: no device activity was to be had, or not all times of it
  std::optional<std::array<double, kTimeClasses>> lost;  ///< with mfu sums to 1; [kMatmul] is beyond the ideal
  std::optional<GemmLoss> gemm_loss;                     ///< sums to lost[kMatmul]; none where nothing can be split
  std::vector<TopKernel> top_kernels;
  NamedBy named_by = NamedBy::kNobody;
  /// An update of the weights: its products, as Muon's, are no model FLOP. A range of that name may be anything.
  bool is_update() const { return region == "optimizer" && named_by != NamedBy::kRange; }
  std::optional<Detected> detected;  ///< where the detector did, or tried to
  /// Key of a shape (`batch`, `seq_len`, ...) and who said it: `range`, `given` (the config), `cached` (the last prompt
  /// and the decode steps since), `detected` (read from kernels). Where instances differ, the least trusted.
  std::vector<std::pair<std::string, std::string>> shape_source;

  std::optional<ExecutedWork> executed;
  std::vector<Component> components;  ///< most time first, `other` last
  std::vector<Finding> findings;
  std::optional<bool> settled;     ///< all of its work was recorded when it was written
  std::vector<IdleCause> idle_by;  ///< longest first; sums to time_ns[kIdle]. Empty: the host was not looked at
  std::optional<Energy> energy;
  std::optional<double> joules_per_token, joules_per_output_token;  ///< of energy
  /// Shares of the window in which power, heat or the board's limit held the device's clock down, 0..1.
  std::optional<double> clock_power, clock_thermal, clock_board;
  Phase phase = Phase::kNone;  ///< not written, and neither is
  bool nested = false;         ///< that its instances are parts of those of other regions

  /// Times of kernels are missing: forgets all that follows from them.
  void forget_kernel_times() {
    classes_known = false;
    mfu_busy = hfu = mfu_mixed = std::nullopt;
    idle_gaps.reset();
    idle_by.clear();
    lost.reset();
    gemm_loss.reset();
    executed.reset();
    components.clear();
    findings.clear();
    top_kernels.clear();
    suspect.clear();
    prefill_to_decode = LatencySummary{};
    after_prefill.reset();
    slowest.clear();
  }
};

/// The quotients of `energy`.
inline void complete_energy(RegionSummary& row) {
  const auto per = [&](std::int64_t count) {
    return row.energy && count > 0 ? std::optional(row.energy->joules / static_cast<double>(count)) : std::nullopt;
  };
  row.joules_per_token = per(row.energy ? row.energy->tokens : 0);
  row.joules_per_output_token = per(row.energy ? row.energy->output_tokens : 0);
}

/// The fate of every launch. seen = attributed + outside + unattributed + dropped.
struct LaunchAccount {
  std::uint64_t seen = 0;
  std::uint64_t attributed = 0;
  std::uint64_t outside = 0;       ///< no region open anywhere
  std::uint64_t unattributed = 0;  ///< several regions open and nothing to decide between them, or its slot was lost
  std::uint64_t dropped = 0;       ///< CUPTI gave no record
  /// Of all but the dropped: the record has no usable time, so that the launch is counted and its work is not.
  std::uint64_t not_timed = 0;
};

/// One of the assumptions about CUPTI that figures rest on, as far as this run has seen.
struct TrustState {
  std::string name;           ///< `records`, `callbacks`, `order`, `clock`, `times`, `buffers`
  std::optional<bool> holds;  ///< none: too few cases so far
  std::uint64_t against = 0;  ///< cases that contradict it, so far in the run
};

/// The library's cost so far.
struct SelfCost {
  double cpu_s = 0;             ///< CPU time of our own threads [s]
  std::uint64_t rss_bytes = 0;  ///< memory that the library holds [B]
  double overhead = 0;          ///< estimated share of the host's wall time, 0..1
};

/// CUDA graphs that were timed as a whole, so far in the run.
struct GraphTimes {
  double s = 0;        ///< time of their launches [s]
  double known_s = 0;  ///< of those whose inside is known from their kernels' times elsewhere [s]
  double error = 0;    ///< of that time, the part that may lie in another class or kernel, 0..1
};

/// Work was launched, and for long nothing has ended.
struct Stall {
  TimeNs since_ns = 0;             ///< when something moved last, UTC
  std::string kernel;              ///< the first one of communication that is under way, else the first; empty: unknown
  bool comm = false;               ///< it is a collective, or another kernel of communication
  std::uint64_t comm_kernels = 0;  ///< of those, that this process has launched
  std::string host;                ///< where the thread is that launched last; empty: unknown
  std::uint64_t collective = 0;    ///< number of `kernel` among those of its stream; 0: it is none, or is not known
};

/// One closed window of every region. `final_run` marks the whole run.
struct WindowSummary {
  Interval window;
  bool final_run = false;
  bool so_far = false;                 ///< of a final_run: the program goes on
  bool settled = true;                 ///< false: closed before all of its work was recorded
  std::vector<RegionSummary> regions;  ///< every region and device with anything to say, `total` last
  LaunchAccount launches;              ///< so far in the run
  std::optional<GraphTimes> graphs;    ///< none: no graph was timed as a whole
  SelfCost self;
  std::vector<std::pair<std::string, std::uint64_t>> counters;  ///< every non-zero counter of faults and losses
  std::vector<TrustState> trust;                                ///< empty where there is no CUPTI
  std::optional<Stall> stall;                                   ///< the one that lasted when this was written
};

}  // namespace mfu
