#include "core/account/region_row.h"

#include <algorithm>

#include "core/rows/region_totals.h"

namespace mfu {

void RegionRow::add_kernels(const std::vector<KernelStat>& stats) {
  if (kernel_stats.size() < stats.size()) kernel_stats.resize(stats.size());
  for (std::size_t i = 0; i < stats.size(); ++i) {
    kernel_stats[i].count += stats[i].count;
    kernel_stats[i].sum_ns += stats[i].sum_ns;
  }
}

void RegionRow::keep_least_trusted(const std::array<ShapeSource, ShapeWords::kCount>& source) noexcept {
  for (std::size_t key = 0; key < source.size(); ++key)
    if (source[key] != ShapeSource::kNone &&
        (shape_source[key] == ShapeSource::kNone || source[key] < shape_source[key]))
      shape_source[key] = source[key];
}

void RegionRow::add(const RegionRow& other) {
  add_up(*this, other);
  flop += other.flop;
  hfu_flop += other.hfu_flop;
  bytes += other.bytes;
  any_work = any_work || other.any_work;
  flop_known = flop_known && other.flop_known;
  bytes_known = bytes_known && other.bytes_known;
  keep_least_trusted(other.shape_source);
  latency.merge(other.latency);
  flop_least += other.flop_least;
  bytes_least += other.bytes_least;
  flop_source = std::max(flop_source, other.flop_source);
  products.add(other.products);
  attention.add(other.attention);
  TimeByWork work = other.idle_work;  // a window's rests are like its looks, not like the run's
  share_out_rests(work);
  mfu::add_times(idle_work, work);
  product_rows += other.product_rows;
  said_tokens += other.said_tokens;
  sequences += other.sequences;
  sequences_known = sequences_known && other.sequences_known;
  add_kernels(other.kernel_stats);
  ends_known = ends_known && other.ends_known;
}

bool RegionRow::empty() const noexcept {
  DurationNs elapsed = 0;
  for (const DurationNs t : time_ns) elapsed += t;
  return instances == 0 && open == 0 && kernels == 0 && launches == 0 && elapsed == 0;
}

}  // namespace mfu
