#include "core/rows/metrics.h"

#include <algorithm>
#include <utility>

#include "core/base/number_text.h"

namespace mfu {
namespace {

constexpr auto kMatmul = static_cast<std::size_t>(TimeClass::kMatmul);
constexpr auto kOther = static_cast<std::size_t>(TimeClass::kOther);

/// The usual cause of so many times more FLOP than the time allows.
const char* likely_cause(double factor) noexcept {
  if (factor < 1.25) {
    return "matmuls in a faster dtype than the peak's, weights counted twice (a tied embedding), or the card clocks "
           "above its data sheet";
  }
  if (factor < 2.6) return "matmuls in a faster dtype than the peak's, or 2:4 sparse; or batch or layers counted twice";
  return "matmuls in a faster dtype than the peak's (TF32 is up to 8 x FP32), FLOP of the whole model on one kernel or "
         "on one rank of many, or batch counted several times";
}

}  // namespace

Roofline roofline(std::optional<double> flop, std::optional<double> bytes, Phase phase, const Peak& peak) noexcept {
  Roofline r;
  if (!flop || !peak.flop_per_s || !(*peak.flop_per_s > 0)) return r;
  const double compute_s = *flop / *peak.flop_per_s;
  if (!bytes || !peak.bytes_per_s || !(*peak.bytes_per_s > 0)) {
    if (!is_training(phase) && phase != Phase::kVision) return r;
    r.seconds = compute_s;
    r.bound = Bound::kCompute;
    return r;
  }
  const double memory_s = *bytes / *peak.bytes_per_s;
  r.bound = memory_s > compute_s ? Bound::kMemory : Bound::kCompute;
  r.seconds = memory_s > compute_s ? memory_s : compute_s;
  return r;
}

std::string suspect_reason(double ideal_s, double matmul_s, double busy_s, double elapsed_s, Bound bound,
                           bool sparse_peak, const char* kernels) {
  if (ideal_s > matmul_s * kMostRatio)
    return "flops_exceed_matmul_time: " + duration_text(ideal_s) + " of matmul at peak, " + kernels + " ran " +
           duration_text(matmul_s) + "; likely " + likely_cause(matmul_s > 0 ? ideal_s / matmul_s : 1e9);
  if (ideal_s > elapsed_s * kMostRatio)
    return "mfu_over_100: " + duration_text(ideal_s) + " of matmul at peak in " + duration_text(elapsed_s) +
           "; likely " + likely_cause(elapsed_s > 0 ? ideal_s / elapsed_s : 1e9);
  if (sparse_peak) return "sparse_peak: divided by the 2:4 sparse peak; dense matmuls reach half of it at most";
  if (bound == Bound::kCompute && ideal_s < 0.001 * busy_s)
    return "mfu_below_0.1: compute-bound work at under 0.1 % of peak; likely a wrong shape or a range around other "
           "work";
  return "";
}

namespace {

/// Says so where the least bytes could not have been moved in the time. Nothing else is asked of them: a bound that is
/// far from reached is no sign of a mistake.
void doubt_bytes(RegionSummary& s) noexcept {
  if (!s.suspect.empty() || !s.mbu || *s.mbu <= kMostRatio) return;
  try {
    s.suspect = "mbu_over_100: " + duration_text(*s.mbu * seconds(s.elapsed_ns)) + " of memory traffic at peak in " +
                duration_text(seconds(s.elapsed_ns)) +
                "; likely a wrong shape, a range around a part of the work, or weights that stay in the cache";
  } catch (...) {  // out of memory: the figures stand without the remark
  }
}

}  // namespace

void complete_metrics(RegionSummary& s, Phase phase, const Peak& peak) noexcept {
  s.mfu = s.mfu_busy = s.hfu = std::nullopt;
  s.lost.reset();
  s.suspect.clear();
  const double elapsed_s = seconds(s.elapsed_ns);
  s.mbu = share_of_peak(s.bytes, peak.bytes_per_s, elapsed_s);
  const Roofline best = roofline(s.flop, s.bytes, phase, peak);
  s.roofline_s = best.seconds;
  s.bound = best.bound;
  if (!s.flop || !peak.flop_per_s || !(*peak.flop_per_s > 0) || elapsed_s <= 0) return doubt_bytes(s);
  const double ideal_s = *s.flop / *peak.flop_per_s;
  const double busy_s = seconds(s.busy_ns);
  s.mfu = ideal_s / elapsed_s;
  if (busy_s > 0) s.mfu_busy = ideal_s / busy_s;
  s.hfu = s.hfu_flop.value_or(*s.flop) / *peak.flop_per_s / elapsed_s;
  std::array<double, kTimeClasses> shares{};
  for (std::size_t i = 0; i < kTimeClasses; ++i) shares[i] = seconds(s.time_ns[i]) / elapsed_s;
  const bool whole_graphs = s.graph_sum_ns > 0;
  s.lost = lost_of(shares, *s.mfu, whole_graphs);
  if (s.instances == 0 && *s.flop == 0) return doubt_bytes(s);  // nothing ended in the window: no FLOP to doubt
  try {
    const double could_s = seconds(s.time_ns[kMatmul] + (whole_graphs ? s.time_ns[kOther] : 0));
    s.suspect = suspect_reason(ideal_s, could_s, busy_s, elapsed_s, s.bound, peak.sparse,
                               whole_graphs ? "kernels" : "matmul kernels");
    doubt_bytes(s);
    doubt_impossible(s);
  } catch (...) {  // out of memory: no remark
  }
}

void doubt_impossible(RegionSummary& row) {
  const auto impossible = [](const std::optional<double>& ratio) { return ratio && !is_possible(*ratio); };
  if (row.lost && (impossible(row.mfu) || !std::ranges::all_of(*row.lost, is_possible))) row.lost.reset();
  if (!row.lost) row.gemm_loss.reset();
  if (!row.suspect.empty()) return;
  for (const auto& [what, ratio] : {std::pair{"mfu", &row.mfu},
                                    {"mfu", &row.mfu_lower},
                                    {"mfu_busy", &row.mfu_busy},
                                    {"hfu", &row.hfu},
                                    {"mbu", &row.mbu},
                                    {"mbu", &row.mbu_lower}})
    if (row.suspect.empty() && impossible(*ratio))
      row.suspect = std::string(what) +
                    "_over_100: more work than the peak allows in the time; likely a wrong shape, "
                    "model or peak, or work of several ranks on one";
}

std::string why_no_times(const RegionSummary& row) {
  if (row.untimed != 0)
    return "not timed (" + std::to_string(row.untimed) + (row.untimed == 1 ? " launch)" : " launches)");
  return row.classes_known ? "" : "no device activity was measured";
}

std::optional<std::array<double, kTimeClasses>> lost_of(std::array<double, kTimeClasses> shares, double mfu,
                                                        bool whole_graphs) noexcept {
  constexpr double kRounding = 1e-12;
  if (whole_graphs) shares[kOther] += std::exchange(shares[kMatmul], 0);
  double& kernels = shares[whole_graphs ? kOther : kMatmul];
  kernels -= mfu;
  if (kernels < -kRounding || !is_possible(mfu)) return std::nullopt;
  kernels = std::max(0.0, kernels);
  return shares;
}

std::optional<double> clock_ratio(std::uint32_t actual_sm_clock_khz, const Peak& peak) noexcept {
  if (actual_sm_clock_khz == 0 || peak.clock_khz == 0) return std::nullopt;
  return static_cast<double>(actual_sm_clock_khz) / peak.clock_khz;
}

void set_clock_ratio(std::optional<double> ratio, RegionSummary& row) noexcept {
  row.clock_ratio = ratio;
  if (!ratio || *ratio >= 1 || !row.gemm_loss || !row.executed || row.elapsed_ns <= 0 || row.bound == Bound::kMemory)
    return;
  double left = (1 - *ratio) * static_cast<double>(row.executed->tiled_ns) / static_cast<double>(row.elapsed_ns);
  for (const auto part : {&GemmLoss::shape, &GemmLoss::rest}) {
    const double moved = std::min(left, *row.gemm_loss.*part);
    *row.gemm_loss.*part -= moved;
    row.gemm_loss->clock += moved;
    left -= moved;
  }
}

}  // namespace mfu
