#include "tools/counters/counter_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/printable.h"
#include "core/kernels/tile.h"
#include "core/ranges/region_rules.h"

namespace mfu {
namespace {

constexpr double kBusy = 60;  ///< [%] Nsight Compute calls a kernel limited by a unit from here on

/// Sums for one row; shares of the SM and of DRAM are weighted by the time of the kernels that have them.
struct Sums {
  std::uint64_t launches = 0;
  double seconds = 0, counted = 0, cores_flop = 0;
  double sm = 0, sm_seconds = 0, dram = 0, dram_seconds = 0, clock = 0, clock_seconds = 0;
  std::map<DType, double> tensor_flop;
  double matrix_vector = 0;                               ///< [s] of matrix-vector kernels without any tensor FLOP
  double split_keys = 0;                                  ///< [s] of attention with split keys
  std::uint32_t split_rows = 0;                           ///< queries that a block of it computes
  double tensor = 0, tensor_sm = 0, tensor_flop_all = 0;  ///< of kernels whose tensor FLOP and SM share are known

  /// \param launches of this kernel, which take `time` in all.
  void add(const CountedKernel& kernel, double launches_of_it, double time) {
    const auto weigh = [time](const std::optional<double>& value, double& sum, double& weight) {
      if (!value) return;
      sum += *value * time;
      weight += time;
    };
    counted += time;
    cores_flop += kernel.cuda_core_flop.value_or(0) * launches_of_it;
    double flop = 0;
    for (const auto& [operand, each] : kernel.tensor_flop) {
      tensor_flop[operand] += each * launches_of_it;
      flop += each * launches_of_it;
    }
    if (flop == 0 && !kernel.tensor_flop.empty() && lower_case(kernel.name).find("gemv") != std::string::npos)
      matrix_vector += time;
    if (kernel.name.find("splitkv") != std::string::npos && flop > 0) {
      split_keys += time;
      if (const auto tiling = tiling_of(kernel.name, {1, 1, 1}, ProblemSize{1, 1, 1})) split_rows = tiling->tile_m;
    }
    if (flop > 0 && kernel.sm_pct) {
      tensor += time;
      tensor_sm += *kernel.sm_pct / 100 * time;
      tensor_flop_all += flop;
    }
    weigh(kernel.sm_pct, sm, sm_seconds);
    weigh(kernel.dram_pct, dram, dram_seconds);
    weigh(kernel.sm_hz, clock, clock_seconds);
  }
};

std::optional<double> mean(double sum, double weight) {
  return weight > 0 ? std::optional(sum / weight) : std::nullopt;
}

std::string bound_of(const CounterRow& row) {
  if (!row.sm || !row.dram) return "";
  if (std::max(*row.sm, *row.dram) * 100 < kBusy) return "latency";
  return *row.sm >= *row.dram ? "compute" : "memory";
}

CounterRow row_of(const std::string& range, const Sums& sums, const std::string& device, const PeakOptions& options) {
  CounterRow row;
  row.range = range;
  row.launches = sums.launches;
  row.seconds = sums.seconds;
  row.counted_seconds = sums.counted;
  row.flop = sums.cores_flop;
  double most = 0;
  for (const auto& [operand, flop] : sums.tensor_flop) {
    row.flop += flop;
    if (flop > most) {
      row.dtype = operand;
      most = flop;
    }
  }
  if (most == 0 && sums.cores_flop > 0) row.dtype = DType::kFp32;
  const auto percent = [](std::optional<double> value) { return value ? std::optional(*value / 100) : value; };
  row.sm = percent(mean(sums.sm, sums.sm_seconds));
  row.dram = percent(mean(sums.dram, sums.dram_seconds));
  row.sm_hz = mean(sums.clock, sums.clock_seconds);
  row.bound = bound_of(row);
  if (device.empty() && !options.tflops) return row;
  const Result<Peak> peak = find_peak_of_name(device, row.dtype, options);
  if (!peak || !peak->flop_per_s) return row;
  row.peak = peak->flop_per_s;
  if (row.counted_seconds > 0 && row.flop > 0) {
    row.hfu = row.flop / (row.counted_seconds * *row.peak);
    if (row.sm_hz && peak->clock_khz > 0) row.hfu_at_clock = *row.hfu * peak->clock_khz * 1e3 / *row.sm_hz;
  }
  return row;
}

/// Ranges by name, a region's where a built-in rule knows it.
class RangeNames {
 public:
  std::string operator()(const std::string& range) {
    const RuleId rule = rules_.match("", range);
    if (rule == RuleId::kNone) return range;
    return rules_.regions()[static_cast<std::size_t>(raw(rules_.open(rule, range, nullptr).region))].name;
  }

 private:
  std::vector<std::string> warnings_;
  RegionRules rules_{{}, {}, warnings_};
};

/// The mean of the counted launches of each kernel, by its plain name.
class CountedMeans {
 public:
  void add(const CountedKernel& kernel) { launches_[plain_kernel_name(kernel.name)].push_back(&kernel); }
  /// Adds `timed` to `sums`, with the counters of its kernel where there are any.
  void add_to(Sums& sums, const TimedKernels& timed) const {
    sums.launches += timed.launches;
    sums.seconds += timed.seconds;
    const auto found = launches_.find(plain_kernel_name(timed.name));
    if (found == launches_.end()) return;
    const double each = 1.0 / static_cast<double>(found->second.size());
    for (const CountedKernel* kernel : found->second)
      sums.add(*kernel, static_cast<double>(timed.launches) * each, timed.seconds * each);
  }

 private:
  std::map<std::string, std::vector<const CountedKernel*>> launches_;
};

/// Says where counters and model differ though nothing is wrong. Measured on an RTX 5090: cuBLAS's gemv has no tensor
/// FLOP, attention with split keys computes 64 rows for one, and SM % is half of the share of the FLOP (FP32 sums).
void explain(const Sums& sums, const CounterRow& row, bool& half_said, std::vector<std::string>& remarks) {
  constexpr double kWorthALine = 0.02, kExact = 0.1;
  const std::string where = printable(row.range);
  if (sums.matrix_vector > kWorthALine * sums.counted)
    remarks.push_back(
        fmt::format("{}: {:.1f} % of the time is of products on CUDA cores (gemv), of which the tensor counter "
                    "has 0: the model has more FLOP than it",
                    where, 100 * sums.matrix_vector / sums.counted));
  if (sums.split_keys > kWorthALine * sums.counted && sums.split_rows > 1)
    remarks.push_back(
        fmt::format("{}: {:.1f} % of the time is of attention with split keys, which computes {} rows for each "
                    "query: the counter has up to {} times the model's FLOP of it",
                    where, 100 * sums.split_keys / sums.counted, sums.split_rows, sums.split_rows));
  if (!row.peak || !row.hfu || !row.hfu_at_clock || sums.tensor == 0 || half_said) return;
  const double of_peak = sums.tensor_flop_all / (sums.tensor * *row.peak) * *row.hfu_at_clock / *row.hfu;
  half_said = std::abs(2 * sums.tensor_sm / (sums.tensor * of_peak) - 1) < kExact;
  if (half_said)
    remarks.push_back(
        fmt::format("{}: SM {:.1f} % of the kernels on tensor cores is half of their {:.1f} % of the peak: this "
                    "GPU adds in FP32 at half of the rate that SM % counts with",
                    where, 100 * sums.tensor_sm / sums.tensor, 100 * of_peak));
}

std::string share(const std::optional<double>& value) { return value ? fmt::format("{:.1f}%", *value * 100) : "-"; }

}  // namespace

Result<CounterReport> report_counters(const std::vector<CounterFile>& files, const std::string& gpu,
                                      const PeakOptions& peak) {
  CounterReport report;
  report.device = gpu;
  const CounterFile* timed = nullptr;
  std::vector<const CountedKernel*> counted;
  for (const CounterFile& file : files) {
    if (!file.timed.empty() && timed != nullptr) return Error{"expected one sum of nsys stats, got two"};
    if (!file.timed.empty()) timed = &file;
    if (report.device.empty()) report.device = file.device;
    for (const CountedKernel& kernel : file.counted) counted.push_back(&kernel);
  }
  if (!gpu.empty() && !peak.tflops)
    if (const auto known = find_peak_of_name(gpu, DType::kBf16, peak); !known)
      return Error{"--gpu: " + known.error().message + "; or give --peak-tflops"};
  Sums all;
  std::map<std::string, Sums> by_range;
  RangeNames name;
  if (timed != nullptr) {
    CountedMeans means;
    for (const CountedKernel* kernel : counted) means.add(*kernel);
    for (const TimedKernels& kernels : timed->timed)
      means.add_to(timed->by_range ? by_range[name(kernels.range)] : all, kernels);
  } else {
    for (const CountedKernel* kernel : counted) {
      std::set<Sums*> rows{&all};
      for (const std::string& range : kernel->ranges) rows.insert(&by_range[name(range)]);
      for (Sums* row : rows) {
        ++row->launches;
        row->seconds += kernel->seconds.value_or(0);
        row->add(*kernel, 1, kernel->seconds.value_or(0));
      }
    }
  }
  bool half_said = false;  // of one GPU it is true once
  // A sum by range counts a kernel under each range around it: there is no row for all of them.
  if (all.launches > 0) {
    report.rows.push_back(row_of("all", all, report.device, peak));
    explain(all, report.rows.back(), half_said, report.remarks);
  }
  std::vector<CounterRow> ranges;
  for (const auto& [range, sums] : by_range) {
    ranges.push_back(row_of(range, sums, report.device, peak));
    explain(sums, ranges.back(), half_said, report.remarks);
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.seconds > b.seconds; });
  std::move(ranges.begin(), ranges.end(), std::back_inserter(report.rows));
  if (counted.empty()) report.remarks.emplace_back("no counters: give the CSV of Nsight Compute beside this one");
  const bool flop = std::any_of(report.rows.begin(), report.rows.end(), [](auto& row) { return row.flop > 0; });
  if (!counted.empty() && !flop)
    report.remarks.emplace_back(
        "no FLOP were counted: ncu --metrics regex:sm__ops_path_tensor_src_.*,gpu__time_duration.sum (flop_count_hp "
        "and "
        "flop_count_sp are n/a on today's GPUs)");
  if (report.device.empty() && !peak.tflops) report.remarks.emplace_back("the GPU is unknown: name it by --gpu");
  return report;
}

std::string counter_text(const CounterReport& report) {
  constexpr std::size_t kRows = 30, kWidth = 28;
  std::string out = fmt::format("{:<{}} {:>8} {:>11} {:>10} {:>9} {:>7} {:>9} {:>6} {:>6}  {}\n", "range", kWidth,
                                "kernels", "time", "FLOP", "TFLOP/s", "HFU", "at clock", "SM", "DRAM", "bound");
  for (std::size_t i = 0; i < std::min(kRows, report.rows.size()); ++i) {
    const CounterRow& row = report.rows[i];
    const bool rate = row.counted_seconds > 0 && row.flop > 0;
    out += fmt::format("{:<{}.{}} {:>8} {:>8.3f} ms {:>10} {:>9} {:>7} {:>9} {:>6} {:>6}  {}\n", printable(row.range),
                       kWidth, kWidth, row.launches, row.seconds * 1e3, rate ? fmt::format("{:.4g}", row.flop) : "-",
                       rate ? fmt::format("{:.4g}", row.flop / row.counted_seconds / 1e12) : "-", share(row.hfu),
                       share(row.hfu_at_clock), share(row.sm), share(row.dram), row.bound);
  }
  if (report.rows.size() > kRows) out += fmt::format("... and {} more (--json has all)\n", report.rows.size() - kRows);
  for (const CounterRow& row : report.rows) {
    if (!row.peak || row.flop == 0) continue;
    out += fmt::format("peak: {} {:.4g} TFLOP/s {}; HFU: FLOP that ran, padding included, over peak x time\n",
                       printable(report.device), *row.peak / 1e12, name(row.dtype));
    break;
  }
  for (const CounterRow& row : report.rows)
    if (row.counted_seconds < 0.9 * row.seconds && row.counted_seconds > 0) {
      out += fmt::format("{}: counters cover {:.1f} % of the time; HFU is of that part\n", printable(row.range),
                         100 * row.counted_seconds / row.seconds);
    }
  for (const std::string& remark : report.remarks) out += remark + "\n";
  return out;
}

nlohmann::ordered_json counter_json(const CounterReport& report) {
  using Json = nlohmann::ordered_json;
  const auto value = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  Json rows = Json::array();
  for (const CounterRow& row : report.rows) {
    rows.push_back({{"range", printable(row.range)},
                    {"launches", row.launches},
                    {"kernel_sum_s", row.seconds},
                    {"counted_s", row.counted_seconds},
                    {"flop", row.flop > 0 ? Json(row.flop) : Json(nullptr)},
                    {"dtype", name(row.dtype)},
                    {"peak_flop_per_s", value(row.peak)},
                    {"hfu", value(row.hfu)},
                    {"hfu_at_clock", value(row.hfu_at_clock)},
                    {"sm", value(row.sm)},
                    {"dram", value(row.dram)},
                    {"sm_clock_hz", value(row.sm_hz)},
                    {"bound", row.bound.empty() ? Json(nullptr) : Json(row.bound)}});
  }
  return {{"v", 1},
          {"device", report.device.empty() ? Json(nullptr) : Json(printable(report.device))},
          {"counters", rows},
          {"remarks", report.remarks}};
}

}  // namespace mfu
