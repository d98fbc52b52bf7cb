#include "core/energy/energy_account.h"

#include <algorithm>

namespace mfu {
namespace {

constexpr const char* kTotal = "total";
constexpr std::uint32_t kIdle = 0, kOutside = 1;  ///< kinds that are no region: nothing runs; work of no region

double idle_s(const RegionSummary& row) { return seconds(row.time_ns[static_cast<std::size_t>(TimeClass::kIdle)]); }

}  // namespace

void EnergyAccount::Use::add(const Use& more) noexcept {
  busy_s += more.busy_s;
  idle_s += more.idle_s;
  tokens += more.tokens;
  output_tokens += more.output_tokens;
}

std::uint32_t EnergyAccount::kind_of(const std::string& region) {
  return kinds_.try_emplace(region, static_cast<std::uint32_t>(kinds_.size()) + kOutside + 1).first->second;
}

void EnergyAccount::add_times(const WindowSummary& window, std::uint32_t device, Device& of) const {
  double at_work = 0;
  std::int64_t output_tokens = 0;
  bool all_have_tokens = true;
  Use total;
  for (const RegionSummary& row : window.regions) {
    if (row.device != device || row.nested) continue;
    of.clean = of.clean && row.classes_known && !row.overlapped;
    const Use use{seconds(row.elapsed_ns) - idle_s(row), idle_s(row), row.tokens,
                  row.phase == Phase::kDecode ? row.tokens : 0};
    if (row.region == kTotal) {
      total = use;
      continue;
    }
    of.span[row.region].add(use);
    at_work += use.busy_s;
    output_tokens += use.output_tokens;
    all_have_tokens = all_have_tokens && (use.tokens > 0 || row.instances == 0);
  }
  total.output_tokens = output_tokens;
  if (!all_have_tokens) total.tokens = 0;  // all joules over a part of the tokens would be no price of a token
  of.clean = of.clean && at_work <= 1.001 * total.busy_s + 1e-3;
  of.span[kTotal].add(total);
}

std::optional<Energy> EnergyAccount::of_region(const Device& of, const std::string& region, const Use& use) const {
  const auto kind = kinds_.find(region);
  if (kind == kinds_.end() || !(use.busy_s > 0)) return std::nullopt;
  const auto at_work = of.fit.of(kind->second);
  const auto idle = of.fit.of(kIdle);
  if (!at_work || (!idle && use.idle_s > 0.02 * use.busy_s)) return std::nullopt;
  const EnergyFit::Watts while_idle = idle.value_or(EnergyFit::Watts{});
  return Energy{at_work->mean * use.busy_s + while_idle.mean * use.idle_s,
                at_work->error * use.busy_s + while_idle.error * use.idle_s,
                EnergyMethod::kFit,
                idle ? std::optional(idle->mean) : std::nullopt,
                use.tokens,
                use.output_tokens};
}

void EnergyAccount::end_span(Device& of, const EnergyReading& now, std::map<std::string, Energy>& found) {
  const double joules = now.joules - of.last->joules, error = now.error + of.last->error;
  const Use& total = of.span[kTotal];
  if (of.clean) {
    EnergyFit::Span span{joules, std::max(now.error, of.last->error), {}};
    double outside = total.busy_s;
    for (const auto& [region, use] : of.span)
      if (region != kTotal) {
        span.seconds.emplace_back(kind_of(region), use.busy_s);
        outside -= use.busy_s;
      }
    span.seconds.emplace_back(kIdle, total.idle_s);
    span.seconds.emplace_back(kOutside, std::max(0.0, outside));
    of.fit.add(std::move(span));
  }
  const auto idle = of.fit.of(kIdle);
  const auto count = [&](const std::string& region, const Energy& span) {
    found[region] = span;
    Energy& run = of.counted[region];
    run = {run.joules + span.joules, std::max(run.error, span.error),       span.method, span.idle_w,
           run.tokens + span.tokens, run.output_tokens + span.output_tokens};
  };  // errors do not add up: a reading that is late for one span is early for the next
  count(kTotal, {joules, error, EnergyMethod::kCounter, idle ? std::optional(idle->mean) : std::nullopt, total.tokens,
                 total.output_tokens});
  for (const auto& [region, use] : of.span) {
    if (region == kTotal || !of.clean) continue;
    of.run[region].add(use);
    const double span_s = total.busy_s + total.idle_s;
    constexpr double kNearlyAll = 0.98;
    if (use.busy_s + use.idle_s >= kNearlyAll * span_s) {
      const double share = (use.busy_s + use.idle_s) / span_s;
      count(region, {joules * share, error + joules * (1 - share), EnergyMethod::kCounter, std::nullopt, use.tokens,
                     use.output_tokens});
    } else if (const auto fitted = of_region(of, region, use)) {
      found[region] = *fitted;
    }
  }
}

void EnergyAccount::add(WindowSummary& window, const ReadCounter& read) {
  for (RegionSummary& row : window.regions) {
    if (!row.device || row.region != kTotal) continue;
    Device& of = devices_[*row.device];
    std::map<std::string, Energy> found;
    if (window.final_run) {
      for (const auto& [region, use] : of.run)
        if (const auto fitted = of_region(of, region, use)) found[region] = *fitted;
      for (const auto& [region, counted] : of.counted)
        if (region == kTotal || counted.tokens >= of.run[region].tokens) found[region] = counted;
    } else {
      add_times(window, *row.device, of);
      const std::optional<EnergyReading> now = read(*row.device, window.window.end_ns);
      if (!now) continue;
      // A counter that falls was set back: nothing is known of the span in which it was.
      if (of.last && now->joules >= of.last->joules) end_span(of, *now, found);
      of.last = now;
      of.span.clear();
      of.clean = true;
    }
    for (RegionSummary& region : window.regions)
      if (region.device == row.device && found.contains(region.region)) region.energy = found[region.region];
  }
  for (RegionSummary& region : window.regions) complete_energy(region);
}

}  // namespace mfu
