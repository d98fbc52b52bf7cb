// Two runs side by side: changes, region by region, in points of MFU by class of the waterfall.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/job/job_report.h"

namespace mfu {

/// A figure of both runs. `change` is b - a, where both are known.
struct ComparedFigure {
  std::string_view key;
  std::optional<double> a, b, change;
};

/// One kernel among the top ones of either run, per instance of the region (per second of it for `total`).
struct ComparedKernel {
  std::string name;
  KernelClass kernel_class = KernelClass::kOther;
  std::optional<double> a_s, b_s;  ///< [s]; none: not among the top kernels of that run
};

struct ComparedRegion {
  std::string name;
  bool in_a = false, in_b = false;
  /// The whole that `classes` divide: kMfu, the changes of mfu and the classes sum to 0; kTime, those of the classes
  /// alone do (MFU is unknown in one of the runs); kNone, there is nothing to compare.
  enum class Basis { kNone, kTime, kMfu } basis = Basis::kNone;
  ComparedFigure mfu;
  std::array<ComparedFigure, kTimeClasses> classes;  ///< `lost` or shares of time, 0..1
  std::vector<ComparedFigure> figures;               ///< hfu, mbu, each_s, latencies, ...
  std::vector<ComparedKernel> kernels;               ///< largest change first
  std::string words;                                 ///< the change, in one sentence
};

/// A fact that is not the same in both runs.
struct Difference {
  std::string what;  ///< `workload.batch`, `GPU`, `step: tokens per instance`
  std::string a, b;
};

struct Comparison {
  const Job* a = nullptr;
  const Job* b = nullptr;
  std::vector<ComparedRegion> regions;  ///< in the order of the runs, `total` last
  std::vector<Difference> differences;  ///< config, model, GPUs, peak, versions
  std::vector<std::string> remarks;     ///< differences in GPU, peak, dtype, convention, ranks: hard to compare
};

/// `a` and `b` must outlive the result.
[[nodiscard]] Comparison compare(const Job& a, const Job& b);

/// {"v", "a", "b": {"path", "regions"...: job_json}, "regions": [{"region", "in", "basis", "mfu": {"a", "b", "change"},
/// "classes": {class: {...}}, "figures": {key: {...}}, "kernels", "words"}], "differences": [{"what", "a", "b"}],
/// "remarks"}
[[nodiscard]] std::string comparison_json(const Comparison& comparison);
/// `branch against main: step +3.1 % token/s`.
[[nodiscard]] std::string comparison_title(const Comparison& comparison);
[[nodiscard]] std::string comparison_text(const Comparison& comparison);
[[nodiscard]] std::string comparison_markdown(const Comparison& comparison);

}  // namespace mfu
