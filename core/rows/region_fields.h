// The fields of a window row, each declared once: its key, where it lies, its unit, how it adds up and when it is
// unknown.
//
// The JSON writer and reader, the sums, the CSV columns, the figures that `--assert` and a comparison know, the
// Prometheus metrics and the table in docs/reference.md are all made from the tables below. A new field is a member in
// region_summary.h and a row here; the one that measures it fills it in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/rows/region_summary.h"

namespace mfu {

enum class Unit : std::uint8_t { kNone, kCount, kToken, kSeconds, kMoment, kFlop, kByte, kRatio };

/// How the field adds up with those of other rows: windows to a run, devices and ranks to a job.
enum class AddsUp : std::uint8_t {
  kSum,       ///< the sum of those that are known
  kHull,      ///< from the first begin to the last end
  kAny,       ///< true where it is true of any row
  kAll,       ///< true where it is true of all rows that say it
  kSame,      ///< kept where all rows agree, else null
  kFirst,     ///< that of the first row that has it
  kLatest,    ///< that of the rows that end last
  kLongest,   ///< that of the rows that took most time
  kMean,      ///< the mean, weighted by elapsed time
  kQuotient,  ///< worked out anew from the sums, see `Weights`
  kMerged,    ///< lists and histograms become one
  kOneRow,    ///< kept where there is one row only
};

enum class Null : std::uint8_t {
  kNever,
  kUnknown,           ///< where it is unknown
  kNoDeviceActivity,  ///< where no kernel or copy could be seen, or some of them have no times
  kAbsent,            ///< the key is left out where there is nothing to say
};

/// The Prometheus metric that `mfu serve` makes of a field.
struct Metric {
  enum class Kind : std::uint8_t { kNone, kGauge, kCounter };  ///< gauge: of the newest window; counter: of all
  Kind kind = Kind::kNone;
  const char* name = "";
  const char* help = "";
};

/// One field of `Row`. `get` is a pointer to its member, or a function that returns a reference to it.
template <typename Get>
struct Field {
  std::string_view key;
  Get get;
  Unit unit = Unit::kNone;
  AddsUp adds_up = AddsUp::kMerged;
  Null null = Null::kNever;
  std::string_view meaning = {};
  Metric metric = {};
  bool compared = false;  ///< shown when two runs are laid side by side

  template <typename Row>
  [[nodiscard]] constexpr auto& of(Row& row) const {
    return std::invoke(get, row);
  }
};
template <typename Get, typename... Rest>
Field(const char*, Get, Rest...) -> Field<Get>;

struct WindowBegin {
  [[nodiscard]] constexpr TimeNs& operator()(RegionSummary& row) const { return row.window.begin_ns; }
  [[nodiscard]] constexpr const TimeNs& operator()(const RegionSummary& row) const { return row.window.begin_ns; }
};
struct WindowEnd {
  [[nodiscard]] constexpr TimeNs& operator()(RegionSummary& row) const { return row.window.end_ns; }
  [[nodiscard]] constexpr const TimeNs& operator()(const RegionSummary& row) const { return row.window.end_ns; }
};

template <std::size_t Index, typename Get>
struct FieldAt {
  Field<Get> field;
};
template <typename Indices, typename... Gets>
struct FieldTable;
/// The fields of one type. A std::tuple of as many costs the compiler a second in each file that reads them.
template <std::size_t... Indices, typename... Gets>
struct FieldTable<std::index_sequence<Indices...>, Gets...> : FieldAt<Indices, Gets>... {
  template <typename Each>
  constexpr void for_each(Each& each) const {
    (each(this->FieldAt<Indices, Gets>::field), ...);
  }
};
template <typename... Gets>
[[nodiscard]] constexpr auto fields(Field<Gets>... all) {
  return FieldTable<std::index_sequence_for<Gets...>, Gets...>{{all}...};
}

/// The fields of T, in the order in which they are written; a type that is no object has none.
template <typename T>
inline constexpr auto kFieldsOf = fields();

template <>
inline constexpr auto kFieldsOf<TopKernel> = fields(Field{"name", &TopKernel::name},
                                                    Field{"class", &TopKernel::kernel_class},
                                                    Field{"count", &TopKernel::count, Unit::kCount},
                                                    Field{"sum_s", &TopKernel::sum_ns, Unit::kSeconds});

template <>
inline constexpr auto kFieldsOf<BatchLatency> = fields(
    Field{"unit", &BatchLatency::unit}, Field{"batch_min", &BatchLatency::batch_min, Unit::kCount},
    Field{"batch_max", &BatchLatency::batch_max, Unit::kCount},
    Field{"instances", &BatchLatency::instances, Unit::kCount}, Field{"tokens", &BatchLatency::tokens, Unit::kToken},
    Field{"elapsed_s", &BatchLatency::elapsed_ns, Unit::kSeconds},
    Field{"latency_s", &BatchLatency::latency, Unit::kSeconds}, Field{"flop", &BatchLatency::flop, Unit::kFlop},
    Field{"bytes", &BatchLatency::bytes, Unit::kByte}, Field{"mfu", &BatchLatency::mfu, Unit::kRatio},
    Field{"mbu", &BatchLatency::mbu, Unit::kRatio});

template <>
inline constexpr auto kFieldsOf<SlowInstance> =
    fields(Field{"nth", &SlowInstance::nth, Unit::kCount}, Field{"t0_ns", &SlowInstance::t0_ns, Unit::kMoment},
           Field{"elapsed_s", &SlowInstance::elapsed_ns, Unit::kSeconds},
           Field{"time_s", &SlowInstance::time_ns, Unit::kSeconds, AddsUp::kMerged, Null::kNoDeviceActivity},
           Field{"lost_to", &SlowInstance::lost_to, Unit::kNone, AddsUp::kMerged, Null::kNoDeviceActivity},
           Field{"excess_s", &SlowInstance::excess_ns, Unit::kSeconds, AddsUp::kMerged, Null::kNoDeviceActivity});

template <>
inline constexpr auto kFieldsOf<Detected> = fields(Field{"kind", &Detected::kind},
                                                   Field{"period_launches", &Detected::period_launches, Unit::kCount},
                                                   Field{"confidence", &Detected::confidence},
                                                   Field{"micro_steps", &Detected::micro_steps, Unit::kCount});

template <>
inline constexpr auto kFieldsOf<ExecutedWork> =
    fields(Field{"flop", &ExecutedWork::flop, Unit::kFlop, AddsUp::kSum},
           Field{"covered_s", &ExecutedWork::covered_ns, Unit::kSeconds, AddsUp::kSum},
           Field{"matmul_s", &ExecutedWork::matmul_ns, Unit::kSeconds, AddsUp::kSum},
           Field{"ideal_s", &ExecutedWork::ideal_ns, Unit::kSeconds, AddsUp::kSum},
           Field{"tile_flop", &ExecutedWork::tile_flop, Unit::kFlop, AddsUp::kSum},
           Field{"tiled_s", &ExecutedWork::tiled_ns, Unit::kSeconds, AddsUp::kSum});

template <>
inline constexpr auto kFieldsOf<GemmLoss> = fields(Field{"padding", &GemmLoss::padding, Unit::kRatio},
                                                   Field{"tiles", &GemmLoss::tiles, Unit::kRatio},
                                                   Field{"waves", &GemmLoss::waves, Unit::kRatio},
                                                   Field{"shape", &GemmLoss::shape, Unit::kRatio},
                                                   Field{"clock", &GemmLoss::clock, Unit::kRatio},
                                                   Field{"rest", &GemmLoss::rest, Unit::kRatio},
                                                   Field{"not_split", &GemmLoss::not_split, Unit::kRatio});

template <>
inline constexpr auto kFieldsOf<IdleGaps> =
    fields(Field{"under_20us_s", &IdleGaps::under_20us, Unit::kSeconds, AddsUp::kSum},
           Field{"under_1ms_s", &IdleGaps::under_1ms, Unit::kSeconds, AddsUp::kSum},
           Field{"longer_s", &IdleGaps::longer, Unit::kSeconds, AddsUp::kSum},
           Field{"before_s", &IdleGaps::before, Unit::kSeconds, AddsUp::kSum},
           Field{"inside_s", &IdleGaps::inside, Unit::kSeconds, AddsUp::kSum},
           Field{"after_s", &IdleGaps::after, Unit::kSeconds, AddsUp::kSum});

template <>
inline constexpr auto kFieldsOf<Energy> =
    fields(Field{"joules", &Energy::joules, Unit::kNone, AddsUp::kSum},
           Field{"error", &Energy::error, Unit::kNone, AddsUp::kSum},
           Field{"method", &Energy::method, Unit::kNone, AddsUp::kFirst},
           Field{"idle_w", &Energy::idle_w, Unit::kNone, AddsUp::kMerged, Null::kUnknown},
           Field{"tokens", &Energy::tokens, Unit::kToken, AddsUp::kSum},
           Field{"output_tokens", &Energy::output_tokens, Unit::kToken, AddsUp::kSum});

template <>
inline constexpr auto kFieldsOf<IdleCause> =
    fields(Field{"cause", &IdleCause::cause, Unit::kNone, AddsUp::kMerged, Null::kUnknown},
           Field{"where", &IdleCause::where, Unit::kNone, AddsUp::kMerged, Null::kUnknown},
           Field{"thread", &IdleCause::thread, Unit::kNone, AddsUp::kMerged, Null::kUnknown},
           Field{"s", &IdleCause::ns, Unit::kSeconds});

template <>
inline constexpr auto kFieldsOf<Component> = fields(
    Field{"name", &Component::name}, Field{"pass", &Component::pass, Unit::kNone, AddsUp::kMerged, Null::kUnknown},
    Field{"calls", &Component::calls, Unit::kCount}, Field{"shapes", &Component::shapes, Unit::kCount},
    Field{"time_s", &Component::time_ns, Unit::kSeconds}, Field{"flop", &Component::flop, Unit::kFlop},
    Field{"flop_per_s", &Component::flop_per_s, Unit::kNone}, Field{"of_peak", &Component::of_peak, Unit::kRatio},
    Field{"bound", &Component::bound}, Field{"loss", &Component::loss, Unit::kNone, AddsUp::kMerged, Null::kAbsent});

template <>
inline constexpr auto kFieldsOf<Finding> = fields(Field{"kind", &Finding::kind}, Field{"text", &Finding::text});

/// A row of a window, and an entry of `end.regions`. CSV columns follow this order and are only ever added at the end:
/// so are fields here.
template <>
inline constexpr auto kFieldsOf<RegionSummary> = fields(
    Field{"region", &RegionSummary::region, Unit::kNone, AddsUp::kFirst, Null::kNever,
          "name of the region; `total`: the process"},
    Field{"device", &RegionSummary::device, Unit::kNone, AddsUp::kSame, Null::kUnknown,
          "index of the device in its process; null: all of them together"},
    Field{"t0_ns", WindowBegin{}, Unit::kMoment, AddsUp::kHull, Null::kNever, "begin of the window, UTC"},
    Field{"t1_ns", WindowEnd{}, Unit::kMoment, AddsUp::kHull, Null::kNever, "its end"},
    Field{"instances", &RegionSummary::instances, Unit::kCount, AddsUp::kSum, Null::kNever,
          "instances that ended in the window", Metric{}, true},
    Field{"open", &RegionSummary::open, Unit::kCount, AddsUp::kLatest, Null::kNever,
          "instances that were open, or still ran on the device, at its end"},
    Field{"tokens", &RegionSummary::tokens, Unit::kToken, AddsUp::kSum, Null::kNever,
          "tokens of the instances that ended", Metric{Metric::Kind::kCounter, "mfu_tokens_total", "Tokens processed"}},
    Field{"elapsed_s", &RegionSummary::elapsed_ns, Unit::kSeconds, AddsUp::kSum, Null::kNever,
          "time inside the region, in device-seconds", Metric{}, true},
    Field{"busy_s", &RegionSummary::busy_ns, Unit::kSeconds, AddsUp::kSum, Null::kNoDeviceActivity,
          "union of its kernels"},
    Field{"kernel_sum_s", &RegionSummary::kernel_sum_ns, Unit::kSeconds, AddsUp::kSum, Null::kNoDeviceActivity,
          "sum of the durations of its kernels"},
    Field{"kernels", &RegionSummary::kernels, Unit::kCount, AddsUp::kSum, Null::kNever, "kernels that began"},
    Field{"launches", &RegionSummary::launches, Unit::kCount, AddsUp::kSum, Null::kNever,
          "calls that put work on a stream; a graph launch is one"},
    Field{"comm_kernels", &RegionSummary::comm_kernels, Unit::kCount, AddsUp::kSum, Null::kNever,
          "communication kernels among its kernels"},
    Field{"comm_sum_s", &RegionSummary::comm_sum_ns, Unit::kSeconds, AddsUp::kSum, Null::kNoDeviceActivity,
          "sum of their durations; waiting for the last rank to arrive is part of it"},
    Field{"latency", &RegionSummary::latency, Unit::kSeconds, AddsUp::kMerged, Null::kUnknown,
          "how long single instances took", Metric{}, true},
    Field{"flop", &RegionSummary::flop, Unit::kFlop, AddsUp::kSum, Null::kUnknown, "model FLOP",
          Metric{Metric::Kind::kCounter, "mfu_model_flops_total", "Model FLOP done"}},
    Field{"bytes", &RegionSummary::bytes, Unit::kByte, AddsUp::kSum, Null::kUnknown, "bytes that the model must move",
          Metric{Metric::Kind::kCounter, "mfu_bytes_total", "Bytes that the model had to move"}},
    Field{"mfu", &RegionSummary::mfu, Unit::kRatio, AddsUp::kQuotient, Null::kUnknown, "FLOP / (peak x elapsed)",
          Metric{Metric::Kind::kGauge, "mfu_ratio", "Model FLOP / (peak x elapsed) of the newest window"}, true},
    Field{"mfu_busy", &RegionSummary::mfu_busy, Unit::kRatio, AddsUp::kQuotient, Null::kUnknown, "FLOP / (peak x busy)",
          Metric{}, true},
    Field{"hfu", &RegionSummary::hfu, Unit::kRatio, AddsUp::kQuotient, Null::kUnknown,
          "(FLOP + recomputed FLOP) / (peak x elapsed); of executed FLOP where 90 % of the matmul time is seen",
          Metric{Metric::Kind::kGauge, "mfu_hfu_ratio", "With recomputed FLOP, of the newest window"}, true},
    Field{
        "mbu", &RegionSummary::mbu, Unit::kRatio, AddsUp::kQuotient, Null::kUnknown,
        "bytes / (peak bandwidth x elapsed)",
        Metric{Metric::Kind::kGauge, "mfu_mbu_ratio", "Model bytes / (peak bandwidth x elapsed) of the newest window"},
        true},
    Field{"roofline_s", &RegionSummary::roofline_s, Unit::kSeconds, AddsUp::kSum, Null::kUnknown,
          "max(FLOP / peak, bytes / bandwidth)"},
    Field{"bound", &RegionSummary::bound, Unit::kNone, AddsUp::kLongest, Null::kUnknown,
          "which of the two it is: `compute` or `memory`"},
    Field{"clock_ratio", &RegionSummary::clock_ratio, Unit::kRatio, AddsUp::kMean, Null::kUnknown,
          "SM clock at the window's end / the clock that the peak stands for", Metric{}, true},
    Field{"suspect", &RegionSummary::suspect, Unit::kNone, AddsUp::kLongest, Null::kUnknown,
          "why the figure is not to be believed, and the likely cause"},
    Field{"overlapped", &RegionSummary::overlapped, Unit::kNone, AddsUp::kAny, Null::kNever,
          "another thread's instance ran on the device at the same time, and each counts all of the time"},
    Field{"time_s", &RegionSummary::time_ns, Unit::kSeconds, AddsUp::kSum, Null::kNoDeviceActivity,
          "elapsed time by class; sums to `elapsed_s`",
          Metric{Metric::Kind::kCounter, "mfu_region_seconds_total",
                 "Device time by class; the classes sum to the elapsed time"}},
    Field{"lost", &RegionSummary::lost, Unit::kRatio, AddsUp::kQuotient, Null::kNoDeviceActivity,
          "shares of the elapsed time; `matmul` is beyond the ideal, so that with `mfu` they sum to 1",
          Metric{Metric::Kind::kGauge, "mfu_lost_ratio",
                 "Share of the newest window lost to the class; with mfu_ratio they sum to 1"}},
    Field{"top_kernels", &RegionSummary::top_kernels, Unit::kNone, AddsUp::kMerged, Null::kNever,
          "the kernels that took most time"},
    Field{"named_by", &RegionSummary::named_by, Unit::kNone, AddsUp::kFirst, Null::kUnknown,
          "who said that this is a region: `range`, `framework`, `interpreter`, `detector`"},
    Field{"inter_token_s", &RegionSummary::inter_token, Unit::kSeconds, AddsUp::kMerged, Null::kUnknown,
          "time of a decode pass, once per pass"},
    Field{"prefill_to_decode_s", &RegionSummary::prefill_to_decode, Unit::kSeconds, AddsUp::kMerged, Null::kUnknown,
          "from the last activity of a prefill to the first of the next decode"},
    Field{"after_prefill", &RegionSummary::after_prefill, Unit::kCount, AddsUp::kSum, Null::kUnknown,
          "decode instances that came after a prefill"},
    Field{"slowest", &RegionSummary::slowest, Unit::kNone, AddsUp::kMerged, Null::kNever,
          "the longest instances, where they are much longer than the median"},
    Field{"by_batch", &RegionSummary::by_batch, Unit::kNone, AddsUp::kMerged, Null::kNever,
          "single instances by their batch: 1, 2, 3-4, 5-8, ..."},
    Field{"shape_source", &RegionSummary::shape_source, Unit::kNone, AddsUp::kOneRow, Null::kAbsent,
          "who said the batch, seq_len, ...: `range`, `given`, `cached`, `detected`"},
    Field{"detected", &RegionSummary::detected, Unit::kNone, AddsUp::kFirst, Null::kAbsent,
          "what the detector found, where it looked"},
    Field{"mfu_lower", &RegionSummary::mfu_lower, Unit::kRatio, AddsUp::kMean, Null::kUnknown,
          "MFU is at least this: where tokens are known and the sequence length is not"},
    Field{"flop_source", &RegionSummary::flop_source, Unit::kNone, AddsUp::kFirst, Null::kUnknown,
          "where the FLOP come from: `shape`, `config`, `detected`, `executed`, `lower_bound`"},
    Field{"executed", &RegionSummary::executed, Unit::kNone, AddsUp::kSum, Null::kUnknown,
          "FLOP of the matmuls that ran, the time of those whose size is known, of all, and at peak; what their tiles "
          "compute, and the time of those whose tiles are known"},
    Field{"settled", &RegionSummary::settled, Unit::kNone, AddsUp::kAll, Null::kUnknown,
          "false: written before all of its work was recorded; the time of what comes later counts in `end` alone"},
    Field{"mbu_lower", &RegionSummary::mbu_lower, Unit::kRatio, AddsUp::kMean, Null::kUnknown,
          "MBU is at least this, likewise"},
    Field{"components", &RegionSummary::components, Unit::kNone, AddsUp::kMerged, Null::kAbsent,
          "its matmuls by what they compute"},
    Field{"findings", &RegionSummary::findings, Unit::kNone, AddsUp::kFirst, Null::kAbsent,
          "what the matmuls that ran say about the model and the program"},
    Field{"untimed", &RegionSummary::untimed, Unit::kCount, AddsUp::kSum, Null::kNever,
          "launches whose records carry no times; above 0, what follows from kernel times is null",
          Metric{Metric::Kind::kCounter, "mfu_untimed_launches_total", "Launches whose records carry no times"}},
    Field{"to_host_bytes", &RegionSummary::to_host_bytes, Unit::kByte, AddsUp::kSum, Null::kAbsent,
          "on `total`: copied from the device to the host by launches outside of every region, as checkpoints are"},
    Field{
        "graph_sum_s", &RegionSummary::graph_sum_ns, Unit::kSeconds, AddsUp::kSum, Null::kNoDeviceActivity,
        "sum of the durations of graphs recorded as one (`MFU_GRAPHS=graph`), whose kernels have no known class: their "
        "time is in `time_s.other`; above 0, `lost.other` has all that kernels lost and `lost.matmul` is 0"},
    Field{"mfu_mixed", &RegionSummary::mfu_mixed, Unit::kRatio, AddsUp::kMean, Null::kUnknown,
          "MFU against the rates of the dtypes that the matmuls had, where not all had the peak's"},
    Field{"idle_gaps", &RegionSummary::idle_gaps, Unit::kNone, AddsUp::kSum, Null::kUnknown,
          "`time_s.idle` by the length of its gaps (the first three), and by where they lie in their instance: before "
          "its first activity, inside, at its end"},
    Field{"idle_by", &RegionSummary::idle_by, Unit::kNone, AddsUp::kMerged, Null::kAbsent,
          "what the host did in `time_s.idle`, longest first; left out where the host was not looked at",
          Metric{Metric::Kind::kCounter, "mfu_idle_seconds_total", "Idle device time by what the host did"}},
    Field{"gemm_loss", &RegionSummary::gemm_loss, Unit::kNone, AddsUp::kQuotient, Null::kUnknown,
          "`lost.matmul` by cause: FLOP beyond the model's, tiles that are not full, the last wave, the shapes, the "
          "clock, the rest, and kernels that say no tile"},
    Field{
        "energy", &RegionSummary::energy, Unit::kNone, AddsUp::kSum, Null::kAbsent,
        "what the board took for the work since the row before that has it [J], within `error`: by its counter, or by "
        "a fit over windows; what it takes idle [W]; the tokens of that time"},
    Field{"joules_per_token", &RegionSummary::joules_per_token, Unit::kNone, AddsUp::kQuotient, Null::kAbsent,
          "`energy.joules / energy.tokens`",
          Metric{Metric::Kind::kGauge, "mfu_joules_per_token", "Energy per token processed of the newest window"},
          true},
    Field{
        "joules_per_output_token", &RegionSummary::joules_per_output_token, Unit::kNone, AddsUp::kQuotient,
        Null::kAbsent, "the same per token that a decode pass made",
        Metric{Metric::Kind::kGauge, "mfu_joules_per_output_token", "Energy per token generated of the newest window"},
        true},
    Field{"clock_power", &RegionSummary::clock_power, Unit::kRatio, AddsUp::kMean, Null::kAbsent,
          "share of the window in which the power limit held the clock down"},
    Field{"clock_thermal", &RegionSummary::clock_thermal, Unit::kRatio, AddsUp::kMean, Null::kAbsent,
          "the same for heat"},
    Field{"clock_board", &RegionSummary::clock_board, Unit::kRatio, AddsUp::kMean, Null::kAbsent,
          "the same for the board's limit"});

/// Calls `each` with every field of T.
template <typename T, typename Each>
constexpr void for_each_field(Each&& each) {
  kFieldsOf<T>.for_each(each);
}

/// An object that has a table of fields.
template <typename T>
inline constexpr bool kHasFields = !std::is_same_v<decltype(kFieldsOf<T>), const decltype(fields())>;

/// A value per class of the waterfall: ClassTimes, or shares.
template <typename T>
inline constexpr bool kIsByClass = false;
template <typename Number>
inline constexpr bool kIsByClass<std::array<Number, kTimeClasses>> = true;
template <typename Number>
inline constexpr bool kIsByClass<std::optional<std::array<Number, kTimeClasses>>> = true;

/// Keys of a quantile end in `_s` where the key of the summary does not say the unit.
[[nodiscard]] constexpr std::string_view quantile_suffix(std::string_view key) noexcept {
  return key.ends_with("_s") ? "" : "_s";
}

}  // namespace mfu
