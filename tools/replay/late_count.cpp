#include "tools/replay/late_count.h"

#include <algorithm>

#include "core/account/shape_resolver.h"
#include "core/families/architecture_json.h"
#include "core/model/least_work.h"
#include "core/rows/device_info.h"
#include "core/rows/metrics.h"

namespace mfu {
namespace {

Phase phase_of(const Config& config, const std::string& region) {
  for (const RegionRule& rule : config.regions)
    if (rule.region == region && rule.phase) return *rule.phase;
  if (region == "forward") return Phase::kForward;
  return region == "backward" ? Phase::kBackward : phase_of_region(region);
}

/// The shape of an instance by the tokens of its row.
Shape mean_shape(const RegionSummary& row, Phase phase) {
  Shape shape;
  if (row.tokens <= 0) return shape;
  const std::int64_t tokens = row.tokens / static_cast<std::int64_t>(row.instances);
  if (phase != Phase::kDecode) {
    shape.tokens = tokens;
    return shape;
  }
  const std::uint64_t passes = row.latency.count != 0 && row.inter_token.count > row.latency.count
                                   ? row.inter_token.count / row.latency.count
                                   : 1;
  shape.batch = std::max<std::int64_t>(1, tokens / static_cast<std::int64_t>(passes));
  if (passes > 1) shape.new_tokens = static_cast<std::int64_t>(passes);
  return shape;
}

}  // namespace

bool LateCount::start(RunInfo& run) {
  counts_ = run.model_json.empty() || run.model_json == "null";
  if (!counts_) return false;
  run.model_json = model_json(config_.model->spec());
  run.convention = config_.model->convention();
  run.config_json = config_.resolved_json;
  const OperandDType operands = operand_dtype(config_.peak.dtype, config_.model->dtype());
  for (DeviceInfo& device : run.devices) {
    const bool assumed = device.dtype_source == "assumed" && operands.source != "assumed";
    if (!assumed && !config_.peak.tflops) continue;
    DeviceFacts facts;
    facts.name = device.name;
    const Peak peak = find_peak(facts, operands.dtype, config_.peak);
    if (!peak.flop_per_s) continue;
    DeviceInfo known = describe_device(device.device, facts, peak, operands);
    known.uuid = device.uuid;
    device = std::move(known);
  }
  devices_ = run.devices;
  return true;
}

Peak LateCount::peak_of(const std::optional<std::uint32_t>& device) const {
  Peak peak;
  for (const DeviceInfo& d : devices_) {
    if (device && d.device != *device) continue;
    if (peak.flop_per_s && peak.flop_per_s != d.peak_flop_per_s) return {};
    peak.flop_per_s = d.peak_flop_per_s;
    peak.bytes_per_s = d.peak_bytes_per_s;
    peak.sparse = d.sparse;
  }
  return peak;
}

void LateCount::count(RegionSummary& row, bool whole) {
  if (!counts_) return;
  if (row.region == "total")
    count_total(row);
  else
    count_region(row, whole);
}

void LateCount::count_region(RegionSummary& row, bool whole) {
  const Phase phase = phase_of(config_, row.region);
  if (phase == Phase::kNone || row.flop) return;
  Instances& of = instances_[{row.region, row.device}];
  if (row.instances != 0) {
    if (!whole) {
      of.elapsed_ns += row.elapsed_ns;
      of.count += row.instances;
    }
    of.shape = mean_shape(row, phase);
  }
  const double each_ns = of.count != 0 ? static_cast<double>(of.elapsed_ns) / static_cast<double>(of.count) : 0;
  const double instances = whole         ? static_cast<double>(row.instances)
                           : each_ns > 0 ? static_cast<double>(row.elapsed_ns) / each_ns
                                         : 0;
  if (!(instances > 0)) return;
  const Shape shape = ShapeResolver(config_.workload).resolve(phase, {of.shape, {}, {}}, 0).shape;
  const bool length_known = is_training(phase) || phase == Phase::kDecode || shape.batch || shape.seq_len ||
                            config_.model->spec().flat_params;
  Work work = config_.model->work(phase, shape);
  if (!work.flop_known || !length_known) {
    const char* lacks = work.flop_known ? "batch or seq_len" : work.missing;
    work = least_work(*config_.model, phase, shape);
    missing_ = row.region + ": " + lacks;
  }
  const Peak peak = peak_of(row.device);
  const auto executed_hfu = row.executed && row.executed->enough() ? row.hfu : std::nullopt;
  const double at_peak = peak.flop_per_s.value_or(0) * seconds(row.elapsed_ns);
  if (!work.flop_known) {
    const double least = at_peak > 0 ? work.flop_least * instances / at_peak : 0;
    if (least > row.mfu_lower.value_or(0)) row.mfu_lower = least;
    return;
  }
  row.flop = work.flop * instances;
  row.hfu_flop = work.hfu_flop * instances;
  if (work.bytes_known) row.bytes = work.bytes * instances;
  row.mfu_lower.reset();
  row.flop_source = FlopSource::kConfig;
  if (row.untimed == 0) complete_metrics(row, phase, peak);
  if (executed_hfu) row.hfu = executed_hfu;
  if (doubts_flop(row) && window_.suspect.empty()) window_.suspect = row.suspect;
  (phase == Phase::kForward || phase == Phase::kBackward ? window_.parts : window_.steps) += *row.flop;
  window_.phase = phase;
}

/// Passes of a step lie inside it.
void LateCount::count_total(RegionSummary& row) {
  const double flop = window_.steps > 0 ? window_.steps : window_.parts;
  const Phase phase = window_.phase;
  const std::string suspect = std::exchange(window_, {}).suspect;
  if (row.flop || !(flop > 0)) return;
  const auto executed_hfu = row.executed && row.executed->enough() ? row.hfu : std::nullopt;
  row.flop = row.hfu_flop = flop;
  row.mfu_lower.reset();
  if (row.untimed == 0) complete_metrics(row, phase, peak_of(std::nullopt));
  if (row.mfu && row.classes_known && row.suspect.empty()) row.suspect = suspect;
  if (executed_hfu) row.hfu = executed_hfu;
}

}  // namespace mfu
