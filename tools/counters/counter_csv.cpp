#include "tools/counters/counter_csv.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "tools/counters/csv_records.h"

namespace mfu {
namespace {

constexpr std::string_view kPushed = "thread Domain:Push/Pop_Range", kStarted = "Id:Domain:Start/Stop_Range";

using Row = std::vector<std::string>;

/// `12,532,580,352` and `17.50`; none for `n/a`.
std::optional<double> number(std::string text) {
  std::erase(text, ',');
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value)
                                                                                   : std::nullopt;
}

/// The factor from `unit` to seconds, hertz, bytes, or plain counts.
double scale_of(std::string_view unit) {
  static constexpr std::pair<std::string_view, double> kTimes[] = {
      {"ns", 1e-9}, {"nsecond", 1e-9}, {"us", 1e-6},           {"usecond", 1e-6},
      {"ms", 1e-3}, {"msecond", 1e-3}, {"cycle/nsecond", 1e9}, {"cycle/usecond", 1e6}};
  for (const auto& [name, scale] : kTimes)
    if (unit == name) return scale;
  if (unit.size() < 2) return 1;
  constexpr std::string_view kPrefixes = "KMGT";  // Kbyte, Mbyte, Ghz, Ginst; `byte` and `inst` are as they are
  const std::size_t at = kPrefixes.find(unit[0]);
  return at == std::string_view::npos ? 1 : std::pow(1000.0, static_cast<double>(at + 1));
}

/// The operand of `sm__ops_path_tensor_src_bf16_dst_fp32.sum`. Where a file has a type both whole and by its result or
/// sparsity, only the whole counts: `rank` 0 before 1 (by result) before 2 (by sparsity).
struct TensorCounter {
  DType operand;
  int rank;
};
std::optional<TensorCounter> tensor_counter(std::string_view metric) {
  constexpr std::string_view kHead = "sm__ops_path_tensor_src_", kTail = ".sum";
  if (!metric.starts_with(kHead) || !metric.ends_with(kTail)) return std::nullopt;
  metric = metric.substr(kHead.size(), metric.size() - kHead.size() - kTail.size());
  const std::string_view operand = metric.substr(0, metric.find('_'));
  const auto dtype = parse_dtype(operand);
  if (!dtype) return std::nullopt;
  const bool sparsity = metric.find("sparsity") != std::string_view::npos;
  return TensorCounter{*dtype, sparsity ? 2 : metric == operand ? 0 : 1};
}

/// FLOP for each count of an instruction counter of CUDA cores; 0: no such counter.
double cuda_core_flop_of(std::string_view metric) {
  for (const std::string_view head : {"sm__", "smsp__"}) {
    if (!metric.starts_with(head)) continue;
    metric.remove_prefix(head.size());
    for (const auto& [name, flop] :
         {std::pair{"fadd", 1.0}, {"fmul", 1.0}, {"ffma", 2.0}, {"dadd", 1.0}, {"dmul", 1.0}, {"dfma", 2.0}})
      if (metric == std::string("sass_thread_inst_executed_op_") + name + "_pred_on.sum") return flop;
    return 0;
  }
  return metric == "flop_count_sp" || metric == "flop_count_dp" || metric == "flop_count_sp.sum" ||
                 metric == "flop_count_dp.sum"
             ? 1
             : 0;
}

/// Gathers the metrics of one launch.
class Metrics {
 public:
  void add(std::string_view metric, std::string_view unit, const std::string& text) {
    const auto value = number(text);
    if (!value) return;
    const double v = *value * scale_of(unit);
    if (const auto tensor = tensor_counter(metric)) {
      auto& by_rank = tensor_[tensor->operand];
      if (by_rank.empty() || tensor->rank < by_rank.begin()->first) by_rank.clear();
      if (by_rank.empty() || tensor->rank == by_rank.begin()->first) by_rank[tensor->rank] += v;
    } else if (const double flop = cuda_core_flop_of(metric); flop > 0) {
      cores_ = cores_.value_or(0) + flop * v;
    } else if (metric == "gpu__time_duration.sum" || (metric == "Duration" && !seconds_)) {
      seconds_ = v;
    } else if (metric == "SM Frequency" || metric == "smsp__cycles_elapsed.avg.per_second" ||
               metric == "gpc__cycles_elapsed.avg.per_second") {
      sm_hz_ = v;
    } else if (metric == "sm__throughput.avg.pct_of_peak_sustained_elapsed" || metric == "Compute (SM) Throughput" ||
               metric == "SM [%]") {
      sm_pct_ = v;
    } else if (metric == "dram__throughput.avg.pct_of_peak_sustained_elapsed" || metric == "DRAM Throughput" ||
               metric == "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed") {
      dram_pct_ = v;
    }
  }
  void move_to(CountedKernel& kernel) const {
    for (const auto& [operand, by_rank] : tensor_) kernel.tensor_flop[operand] = by_rank.begin()->second;
    kernel.cuda_core_flop = cores_;
    kernel.seconds = seconds_;
    kernel.sm_hz = sm_hz_;
    kernel.sm_pct = sm_pct_;
    kernel.dram_pct = dram_pct_;
  }

 private:
  std::map<DType, std::map<int, double>> tensor_;
  std::optional<double> cores_, seconds_, sm_hz_, sm_pct_, dram_pct_;
};

/// The ranges of a cell: `1  "<default domain>:decode:none:none:none:none:none:none"  "..."`. A range's own name may
/// have colons: it is what lies between its domain and its last six attributes.
void add_ranges(std::string_view cell, std::vector<std::string>* ranges) {
  for (std::size_t at = cell.find('"'); at != std::string_view::npos; at = cell.find('"', at + 1)) {
    const std::size_t end = cell.find('"', at + 1);
    if (end == std::string_view::npos) return;
    std::string_view range = cell.substr(at + 1, end - at - 1);
    at = end;
    range.remove_prefix(std::min(range.find(':'), range.size() - 1) + 1);
    for (int attribute = 0; attribute < 6; ++attribute) {
      const std::size_t colon = range.rfind(':');
      if (colon == std::string_view::npos) break;
      range = range.substr(0, colon);
    }
    if (!range.empty()) ranges->emplace_back(range);
  }
}

/// Columns by their names.
class Header {
 public:
  explicit Header(Row names) : names_(std::move(names)) {}
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? std::nullopt : std::optional<std::size_t>(found - names_.begin());
  }
  [[nodiscard]] std::optional<std::size_t> starting_with(std::string_view name) const {
    const auto found = std::find_if(names_.begin(), names_.end(), [&](auto& n) { return n.starts_with(name); });
    return found == names_.end() ? std::nullopt : std::optional<std::size_t>(found - names_.begin());
  }
  [[nodiscard]] std::string cell(const Row& row, std::string_view name) const {
    const auto at = find(name);
    return at && *at < row.size() ? row[*at] : "";
  }
  [[nodiscard]] const Row& names() const { return names_; }

 private:
  Row names_;
};

CountedKernel launch_of(const Header& header, const Row& row) {
  CountedKernel kernel;
  kernel.name = header.cell(row, "Kernel Name");
  for (const std::string_view column : {kPushed, kStarted})
    if (const auto at = header.starting_with(column); at && *at < row.size()) add_ranges(row[*at], &kernel.ranges);
  return kernel;
}

/// A row per launch and metric; rows of one launch are together and have its `ID`.
void read_details(CsvRecords& records, const Header& header, CounterFile& file) {
  std::string id;
  Metrics metrics;
  const auto finish = [&] {
    if (!file.counted.empty()) metrics.move_to(file.counted.back());
    metrics = Metrics{};
  };
  for (Row row; records.next(&row);) {
    const std::string now = header.cell(row, "Process ID") + " " + header.cell(row, "ID");
    if (file.counted.empty() || now != id) {
      finish();
      file.counted.push_back(launch_of(header, row));
      id = now;
    }
    metrics.add(header.cell(row, "Metric Name"), header.cell(row, "Metric Unit"), header.cell(row, "Metric Value"));
  }
  finish();
}

/// A row per launch and a column per metric; the first row has the units.
void read_raw(CsvRecords& records, const Header& header, CounterFile& file) {
  Row units;
  records.next(&units);
  for (Row row; records.next(&row);) {
    CountedKernel kernel = launch_of(header, row);
    Metrics metrics;
    for (std::size_t i = 0; i < std::min(row.size(), header.names().size()); ++i)
      metrics.add(header.names()[i], i < units.size() ? units[i] : "", row[i]);
    metrics.move_to(kernel);
    if (file.device.empty()) file.device = header.cell(row, "device__attribute_display_name");
    file.counted.push_back(std::move(kernel));
  }
}

/// \param unit what follows `Total Time`: sums are in nanoseconds unless another unit was asked for.
void read_sums(CsvRecords& records, const Header& header, std::size_t time, CounterFile& file) {
  const std::string& title = header.names()[time];
  const std::size_t open = title.find('('), close = title.find(')');
  const double scale = open == std::string::npos || close == std::string::npos || close < open
                           ? 1e-9
                           : scale_of(std::string_view(title).substr(open + 1, close - open - 1));
  file.by_range = header.find("NVTX Range").has_value();
  const std::string_view name = file.by_range ? "Kernel Name" : "Name";
  const std::string_view launches = file.by_range ? "Kern Inst" : "Instances";
  for (Row row; records.next(&row);) {
    TimedKernels kernels{header.cell(row, name), header.cell(row, "NVTX Range"), 0, 0};
    if (kernels.range.starts_with(':')) kernels.range.erase(0, 1);  // the default domain
    kernels.launches = static_cast<std::uint64_t>(number(header.cell(row, launches)).value_or(0));
    kernels.seconds = (time < row.size() ? number(row[time]) : std::nullopt).value_or(0) * scale;
    if (kernels.launches > 0) file.timed.push_back(std::move(kernels));
  }
}

}  // namespace

Result<CounterFile> read_counters(std::istream& in, const std::string& place) {
  CsvRecords records(in);
  CounterFile file;
  for (Row row; records.next(&row);) {
    if (row.size() < 3) continue;  // printed before the table
    const Header header(std::move(row));
    if (header.find("Kernel Name") && header.find("Metric Name") && header.find("Metric Value"))
      read_details(records, header, file);
    else if (header.find("Kernel Name") && header.find("ID"))
      read_raw(records, header, file);
    else if (const auto time = header.starting_with("Total Time");
             time && (header.find("Instances") || header.find("Kern Inst")))
      read_sums(records, header, *time, file);
    else
      return Error{place +
                   ": expected CSV of Nsight Compute (ncu --csv --page raw or details) or of nsys stats "
                   "(cuda_gpu_kern_sum, nvtx_kern_sum)"};
    break;
  }
  if (file.counted.empty() && file.timed.empty()) return Error{place + ": expected kernels, found none"};
  return file;
}

std::string plain_kernel_name(const std::string& name) {
  std::string out;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '(') {
      const std::size_t close = name.find(')', i);
      const bool cast = close != std::string::npos && close + 1 < name.size() && depth > 0 &&
                        (std::isalnum(static_cast<unsigned char>(name[close + 1])) != 0 || name[close + 1] == '-');
      if (!cast && depth == 0) break;  // the parameters
      if (cast) {
        i = close;
        continue;
      }
    }
    depth += (c == '<') - (c == '>');
    if (c == ':' && i + 1 < name.size() && name[i + 1] == ':') {
      while (!out.empty() && (std::isalnum(static_cast<unsigned char>(out.back())) != 0 || out.back() == '_'))
        out.pop_back();
      ++i;
      continue;
    }
    out += c;
  }
  if (out.starts_with("void ")) out.erase(0, 5);
  return out;
}

}  // namespace mfu
