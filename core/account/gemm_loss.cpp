#include "core/account/gemm_loss.h"

#include <algorithm>
#include <cmath>

#include "core/model/component_names.h"

namespace mfu {

void TiledWork::add(const Product& product, const ProductStat& stat, const Tiling& tiling, const Peak& peak) {
  const std::optional<double> peak_rate = peak.rate_of(product.operands);
  if (!tiling.padded_flop || tiling.units <= 0 || stat.calls == 0 || product.complex || peak_rate.value_or(0) <= 0)
    return;
  const auto calls = static_cast<double>(stat.calls), units = static_cast<double>(tiling.units);
  const double rate = *peak_rate * 1e-9;  // FLOP/ns
  const auto all = static_cast<double>(stat.matmul_ns);
  const double fastest = std::min(all, static_cast<double>(stat.least_ns) * calls);
  const double ideal = product.flop() * calls / rate, padded = *tiling.padded_flop * calls / rate;
  const double memory = peak.bytes_per_s.value_or(0) > 0 ? bytes_once(product) * calls / *peak.bytes_per_s * 1e9 : 0;
  const double last_wave = peak.sm_count > 0 ? std::ceil(units / peak.sm_count) * peak.sm_count / units : 1;
  double at = std::min(fastest, ideal);
  const auto up_to = [&at, fastest](double time) {
    const double from = at;
    at = std::clamp(time, at, fastest);
    return at - from;
  };
  loss_ns.shape += up_to(memory);
  loss_ns.tiles += up_to(padded);
  loss_ns.waves += up_to(padded * last_wave);
  loss_ns.shape += up_to(fastest);
  loss_ns.rest += all - fastest;
  if (peak.flop_per_s.value_or(0) > 0)
    dtype_ns += std::max(0.0, ideal - product.flop() * calls / (*peak.flop_per_s * 1e-9));
  tile_flop += *tiling.padded_flop * calls;
  time_ns += stat.matmul_ns;
}

void TiledWork::add(const TiledWork& other) noexcept {
  for (const auto part : kGemmLossParts) loss_ns.*part += other.loss_ns.*part;
  dtype_ns += other.dtype_ns;
  tile_flop += other.tile_flop;
  time_ns += other.time_ns;
}

std::optional<GemmLoss> gemm_loss_of(const TiledWork& tiled, const RegionRow& row, const Peak& peak,
                                     const RegionSummary& s) {
  constexpr auto kMatmul = static_cast<std::size_t>(TimeClass::kMatmul);
  if (!s.lost || !s.executed || !s.flop || s.graph_sum_ns > 0 || tiled.time_ns == 0) return std::nullopt;
  GemmLoss loss = tiled.loss_ns;
  loss.rest += tiled.dtype_ns;
  // Kernels that ran beside each other share the time in which a matmul ran.
  const auto all_ns = static_cast<double>(std::max<DurationNs>(1, s.executed->matmul_ns));
  const double at_once = std::min(1.0, static_cast<double>(s.time_ns[kMatmul]) / all_ns);
  for (const auto part : kGemmLossParts) loss.*part *= at_once / static_cast<double>(s.elapsed_ns);
  constexpr double kAll = 0.99;
  if (!row.cut && s.open == 0 && s.executed->coverage() >= kAll)
    loss.padding = std::max(0.0, s.executed->flop - *s.flop) / *peak.flop_per_s / seconds(s.elapsed_ns);
  loss.fit((*s.lost)[kMatmul]);
  return loss;
}

}  // namespace mfu
