#include "core/account/window_rows.h"

#include <cmath>
#include <numeric>

#include "core/account/row_summary.h"
#include "core/rows/metrics.h"

namespace mfu {
namespace {

constexpr std::size_t kFinishedKept = 256;

/// What is compared with the tokens of a region: rows of products, sequences.
void note_rows(const Instance& instance, double part, RegionRow& into) {
  if (instance.said_tokens > 0 && instance.seen_rows > 0) {
    into.product_rows += static_cast<double>(instance.seen_rows) * part;
    into.said_tokens += static_cast<double>(instance.said_tokens) * part;
  }
  if (!instance.prefills()) return;
  const std::int64_t sequences =
      instance.seen_sequences > 0 ? instance.seen_sequences : instance.shape.batch.value_or(0);
  into.sequences += static_cast<double>(sequences) * part;
  into.sequences_known = into.sequences_known && sequences > 0;
}

/// A window that was not measured keeps its counts and times, and nothing that is divided by them.
void forget_measured(RegionSummary& region) {
  region.forget_kernel_times();
  region.flop = region.hfu_flop = region.bytes = region.mfu = region.mbu = std::nullopt;
  region.roofline_s = region.mfu_lower = region.mbu_lower = std::nullopt;
  region.flop_source = FlopSource::kNone;
  for (BatchLatency& batch : region.by_batch) batch.flop = batch.bytes = batch.mfu = batch.mbu = std::nullopt;
  region.bound = Bound::kUnknown;
}

}  // namespace

void WindowRows::add_device(std::uint32_t device) {
  if (device >= devices_.size()) devices_.resize(device + 1);
  devices_[device] = std::make_unique<Device>();
  devices_[device]->ends.resize(rules_.regions().size());
}

std::uint32_t WindowRows::path_of(std::uint32_t outer, RegionId region) {
  const auto [it, inserted] =
      region_path_index_.try_emplace({outer, region}, static_cast<std::uint32_t>(region_paths_.size()));
  if (inserted) region_paths_.push_back({outer, region});
  return it->second;
}

bool WindowRows::measured(Interval window) const noexcept {
  return std::none_of(unmeasured_.begin(), unmeasured_.end(),
                      [window](const Interval& u) { return u.begin_ns < window.end_ns && window.begin_ns < u.end_ns; });
}

void WindowRows::add_untimed(std::uint32_t path, std::uint32_t device, Interval when, bool first) {
  constexpr std::int64_t kMostMarked = 4096;  // a clock that jumps goes past many
  const std::int64_t window = std::max(next_window_, grid().window_of(when.begin_ns));
  const std::int64_t last = std::min(grid().window_of(when.end_ns), window + kMostMarked);
  for (std::uint32_t p = path;; p = region_paths_[p].outer) {
    const std::uint32_t region = p == 0 ? kTotal : raw(region_paths_[p].region);
    RegionRow& into = row(window, region, device);
    ++into.untimed;
    into.launches += first ? 1 : 0;
    if (path == 0) ++into.unowned_untimed;
    // From the last one back: where one is marked, so are those before it, since time only goes on.
    for (std::int64_t w = last; w > window && row(w, region, device).maybe_untimed++ == 0;) --w;
    if (p == 0) break;
  }
}

void WindowRows::close_edge(std::uint32_t device, DeviceTimeline& timeline) {
  Device& on = *devices_[device];
  RegionRow& total = row(timeline.window(), kTotal, device);
  const ClassTimes times = timeline.class_times();
  for (std::size_t c = 0; c < kTimeClasses; ++c) total.time_ns[c] += times[c] - on.edge_times[c];
  IdleGaps gaps = timeline.cut_gaps();
  gaps.inside = times[static_cast<std::size_t>(TimeClass::kIdle)];
  IdleGaps more = gaps;
  more.add(on.edge_gaps, -1);
  total.add_idle(more);
  add_times(total.idle_work, timeline.idle_work().since(on.edge_work));
  on.edge_gaps = gaps;
  total.busy_ns += timeline.busy_ns() - on.edge_busy_ns;
  total.kernel_sum_ns += timeline.kernel_sum_ns() - on.edge_sum_ns;
  on.edge_times = times;
  on.edge_busy_ns = timeline.busy_ns();
  on.edge_sum_ns = timeline.kernel_sum_ns();
  count_began(timeline.window(), device, timeline.counts());
}

void WindowRows::correct_edge(std::uint32_t device, const ClassTimes& by, DurationNs busy_ns) noexcept {
  add_times(devices_[device]->edge_times, by);
  devices_[device]->edge_busy_ns += busy_ns;
}

/// An activity that began on `device` in `window` counts in each region of its path and in the process.
void WindowRows::count_began(std::int64_t window, std::uint32_t device, std::vector<ActivityCounts>& by_region_path) {
  for (std::uint32_t path = 0; path < by_region_path.size(); ++path) {
    ActivityCounts& counts = by_region_path[path];
    const std::uint64_t kernels =
        std::accumulate(counts.kernels.begin(), counts.kernels.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const KernelStat& stat) { return sum + stat.count; });
    if (counts.launches == 0 && kernels == 0) continue;
    for (std::uint32_t p = path;; p = region_paths_[p].outer) {
      RegionRow& into = row(window, p == 0 ? kTotal : raw(region_paths_[p].region), device);
      into.launches += counts.launches;
      into.kernels += kernels;
      into.add_kernels(counts.kernels);
      into.products.add(counts.products);
      if (p == 0) break;
    }
    counts.launches = 0;
    counts.products.clear();
    std::fill(counts.kernels.begin(), counts.kernels.end(), KernelStat{});
  }
}

void WindowRows::follow_in_order(std::uint32_t device, Instance& instance) {
  Device& on = *devices_[device];
  InstanceOnDevice& share = instance.shares[device];
  share.nth = on.next_nth(instance.region);
  if (instance.decode.passes > 0 && !on.prefills.empty())
    row(window_of_end(share), raw(instance.region), device)
        .latency.add_decode(on.prefills, share.begin_ns, share.active ? share.first_activity_ns : share.begin_ns);
  if (instance.prefills() && share.untimed == 0) on.prefills.add(share.last_activity_end_ns);
}

WindowRows::Shares WindowRows::shares_of(const Instance& instance) const {
  Shares found;
  double matmul = 0, kernels = 0;
  for (std::uint32_t d = 0; d < instance.shares.size(); ++d) {
    const InstanceOnDevice& share = instance.shares[d];
    if (!share.has_work()) continue;
    found.emplace_back(d, 0.0);
    matmul += static_cast<double>(share.matmul_sum_ns);
    kernels += static_cast<double>(share.kernel_sum_ns);
  }
  if (found.empty()) {
    std::uint32_t device = 0, count = 0;
    for (std::uint32_t d = 0; d < devices_.size(); ++d) {
      if (!devices_[d]) continue;
      if (count++ == 0 || instance.home_device == d) device = d;
    }
    if (count == 1 || (count != 0 && instance.home_device == device)) found.emplace_back(device, 1.0);
    return found;
  }
  // With times missing, where the work was is not known; nor is it how much of the elapsed time of each device.
  const bool untimed =
      std::any_of(found.begin(), found.end(), [&](const auto& on) { return instance.shares[on.first].untimed != 0; });
  if (untimed) matmul = kernels = 0;
  // On several devices the work was where the matmuls ran: nothing says more than that.
  for (auto& [d, part] : found) {
    const InstanceOnDevice& share = instance.shares[d];
    part = matmul > 0    ? static_cast<double>(share.matmul_sum_ns) / matmul
           : kernels > 0 ? static_cast<double>(share.kernel_sum_ns) / kernels
                         : 1.0 / static_cast<double>(found.size());
  }
  return found;
}

void WindowRows::add_work(const Instance& instance, std::uint32_t device, std::int64_t window, const Work& work,
                          double part, bool cut) {
  if (instance.phase == Phase::kNone) return;
  const auto add = [&](RegionRow& into) {
    into.any_work = true;
    into.flop += work.flop * part;
    into.hfu_flop += work.hfu_flop * part;
    into.bytes += work.bytes * part;
    into.flop_least += work.at_least_flop() * part;
    into.bytes_least += work.at_least_bytes() * part;
    into.flop_source = std::max(into.flop_source, instance.flop_source);
    into.flop_known = into.flop_known && work.flop_known;
    into.bytes_known = into.bytes_known && work.bytes_known;
    into.cut = into.cut || cut;
  };
  add(row(window, raw(instance.region), device));
  // Enclosing regions without a phase inherit this work; the first one with a phase counts it itself, so stop there.
  for (const Instance* outer = instance.parent; outer != nullptr; outer = outer->parent) {
    if (outer->phase != Phase::kNone) return;
    add(row(window, raw(outer->region), device));
  }
  add(row(window, kTotal, device));
}

void WindowRows::add_attention(const Instance& instance, std::uint32_t device, std::int64_t window, double part) {
  const AttentionWork& work = instance.attention;
  if (work.forward_kernels + work.backward_kernels + work.products_again == 0) return;
  row(window, raw(instance.region), device).attention.add(work, part);
  if (instance.top_level()) row(window, kTotal, device).attention.add(work, part);
}

/// Its times, and by them its work, into the windows that it ran in.
void WindowRows::spread_work(const Instance& instance, std::uint32_t device, double part) {
  const InstanceOnDevice& share = instance.shares[device];
  const Work& left = instance.by_parts() ? instance.parts->sum : instance.work;  // that no window has yet
  DurationNs elapsed_left = 0;
  for (const WindowSlice& slice : share.portions) elapsed_left += slice.elapsed_ns();
  // Nested ranges of the same region already put their FLOP into earlier windows. Otherwise those windows got time
  // without FLOP, and the FLOP go to the run's totals.
  const DurationNs base = instance.by_parts() ? elapsed_left : share.elapsed_ns;
  const auto add = [&](std::int64_t window, double of_work, bool cut) {
    add_work(instance, device, window, left, part * of_work, cut);
    add_attention(instance, device, window, part * of_work);
  };
  double given = 0;
  for (const WindowSlice& slice : share.portions) {
    row(slice.window, raw(instance.region), device).add_times(slice);
    const double of_time = base > 0 ? static_cast<double>(slice.elapsed_ns()) / static_cast<double>(base) : 0.0;
    if (of_time > 0) add(slice.window, of_time, of_time < 1);
    given += of_time;
  }
  if (base == 0)
    add(window_of_end(share), 1, false);
  else if (!instance.by_parts() && elapsed_left < base)
    add(next_window_ - 1, 1 - given, false);
}

void WindowRows::count_ended(const Instance& instance, std::uint32_t device, double part, std::int64_t tokens,
                             bool has_latency) {
  const std::int64_t window = window_of_end(instance.shares[device]);
  RegionRow& at_end = row(window, raw(instance.region), device);
  ++at_end.instances;
  at_end.keep_least_trusted(instance.shape_source);
  at_end.tokens += tokens;
  note_rows(instance, part, at_end);
  if (has_latency) add_latency(instance, device, part, tokens, at_end);
  // Otherwise its tokens are those of a region around it.
  if (!instance.inside_work()) row(window, kTotal, device).tokens += tokens;
  if (instance.top_level()) {
    ++row(window, kTotal, device).instances;
    mark_overlaps(instance, device, window);
  }
}

/// Where an instance with untimed launches ended is known if instances of its region end with their ranges.
void WindowRows::note_end(const Instance& instance, std::uint32_t device) {
  const InstanceOnDevice& share = instance.shares[device];
  Ends& ends = devices_[device]->ends[raw(instance.region)];
  const bool detected = instance.kind == InstanceKind::kDetected;
  if (share.untimed == 0) {
    ends.timed += !detected && share.active ? 1 : 0;
    ends.outlived += !detected && share.active && share.last_activity_end_ns > instance.close_ns ? 1 : 0;
  } else if (detected || !ends.with_ranges()) {
    const auto forget = [&](std::int64_t window) { row(window, raw(instance.region), device).ends_known = false; };
    for (const WindowSlice& slice : share.portions) forget(slice.window);
    forget(window_of_end(share));
  }
}

void WindowRows::account(const Instance& instance, const Shares& shares) {
  if (!instance.top_level()) nested_[raw(instance.region)] = true;
  std::int64_t tokens_left = instance.work.tokens;
  for (std::size_t k = 0; k < shares.size(); ++k) {
    const auto [device, part] = shares[k];
    note_end(instance, device);
    spread_work(instance, device, part);
    const std::int64_t tokens =
        k + 1 == shares.size()
            ? tokens_left
            : static_cast<std::int64_t>(std::llround(static_cast<double>(instance.work.tokens) * part));
    tokens_left -= tokens;
    count_ended(instance, device, part, tokens, instance.shares[device].active || shares.size() == 1);
  }
}

void WindowRows::add_latency(const Instance& instance, std::uint32_t device, double part, std::int64_t tokens,
                             RegionRow& into) {
  const InstanceOnDevice& share = instance.shares[device];
  EndedInstance ended;
  ended.time.nth = share.has_work() ? share.nth : devices_[device]->next_nth(instance.region);
  ended.time.t0_ns = share.begin_ns;
  ended.time.elapsed_ns = share.elapsed_ns;
  ended.time.time_ns = share.time_ns;
  ended.decode = instance.decode;
  ended.tokens = tokens;
  if (instance.prefills()) {
    ended.unit = BatchUnit::kTokens;
    ended.batch = instance.work.tokens;
  } else if (instance.phase == Phase::kDecode) {
    ended.batch = instance.decode.batch();
  }
  if ((model_ || instance.detected().model) && instance.work.flop_known) {
    ended.flop = instance.work.flop * part;
    if (instance.work.bytes_known) ended.bytes = instance.work.bytes * part;
  }
  into.latency.add(ended);
}

void WindowRows::mark_overlaps(const Instance& instance, std::uint32_t device, std::int64_t window) {
  const InstanceOnDevice& share = instance.shares[device];
  if (!share.has_work()) return;
  std::deque<Finished>& finished = devices_[device]->finished;
  std::size_t& of_thread = devices_[device]->newest_of_thread;
  if (!finished.empty() && finished.back().thread != instance.thread) of_thread = 0;
  for (std::size_t others = finished.size() - of_thread, i = 0; i < others; ++i) {
    const Finished& other = finished[i];
    if (other.thread == instance.thread || other.end_ns <= share.begin_ns || share.end_ns <= other.begin_ns) continue;
    row(window, raw(instance.region), device).overlapped = true;
    row(other.window, other.region, device).overlapped = true;
  }
  finished.push_back({share.begin_ns, share.end_ns, instance.thread, raw(instance.region), window});
  if (finished.size() > kFinishedKept) finished.pop_front();
  of_thread = std::min(of_thread + 1, finished.size());
}

/// An instance that is still open, or still runs, when a window is emitted: its time there is known, its FLOP only as
/// far as its parts say.
void WindowRows::give_out_early(Instance& instance, std::int64_t window) {
  Work parts = Work::none();
  const bool by_parts = instance.by_parts();
  if (by_parts) {
    for (auto it = instance.parts->by_window.begin(); it != instance.parts->by_window.end() && it->first <= window;) {
      parts.add(it->second);
      it = instance.parts->by_window.erase(it);
    }
    if (instance.leaves_out_attention()) parts.leave_out();
    instance.parts->sum.flop -= parts.flop;
    instance.parts->sum.hfu_flop -= parts.hfu_flop;
    instance.parts->sum.bytes -= parts.bytes;
    instance.parts->sum.tokens -= parts.tokens;
    instance.parts->given.add(parts);
  }
  for (const auto& [d, part] : shares_of(instance)) {
    if (d >= instance.shares.size()) continue;
    InstanceOnDevice& share = instance.shares[d];
    for (auto it = share.portions.begin(); it != share.portions.end();) {
      if (it->window > window) {
        ++it;
        continue;
      }
      RegionRow& into = row(window, raw(instance.region), d);
      into.add_times(*it);
      ++into.open;
      if (instance.phase != Phase::kNone && !by_parts) {
        into.flop_pending = true;
        if (!instance.inside_work()) row(window, kTotal, d).flop_pending = true;
      }
      it = share.portions.erase(it);
    }
    if (by_parts) add_work(instance, d, window, parts, part, true);
  }
}

/// Untimed launches outside of every region may be of any detected one, whose launches are not known before they have
/// times; and those of one thread's instance ran beside those of another that it overlaps.
void WindowRows::spread_untimed(Rows& rows) const {
  for (auto& [key, row] : rows) {
    const auto& [region, device] = key;
    if (region == kTotal) continue;
    const auto total = rows.find({kTotal, device});
    if (total == rows.end()) continue;
    const RegionRow& all = total->second;
    const bool detected = named_by_[region] == NamedBy::kDetector;
    if (detected && all.unowned_untimed + all.maybe_untimed != 0) {
      row.untimed += all.unowned_untimed;
      row.maybe_untimed += all.maybe_untimed;
      row.ends_known = false;
    } else if (row.overlapped) {
      row.untimed = std::max(row.untimed, all.untimed);
    }
  }
}

void WindowRows::emit_until(TimeNs end, const LiveInstances& live) {
  const std::int64_t window = next_window_;
  for (const auto& instance : live)
    if (instance->kind != InstanceKind::kNested) give_out_early(*instance, window);
  WindowSummary out;
  out.window = {grid().edge(window), end};
  const bool traced = measured(out.window);
  if (const auto found = windows_.find(window); found != windows_.end()) {
    spread_untimed(found->second);
    summarize(found->second, out);
    if (traced) {
      for (const auto& [key, from] : found->second) {
        run_[key].add(from);
        run_[key].cut |= from.cut;
      }
    } else {
      left_out_ = true;
      std::for_each(out.regions.begin(), out.regions.end(), forget_measured);
    }
    windows_.erase(found);
  }
  while (!unmeasured_.empty() && unmeasured_.front().end_ns <= out.window.begin_ns) unmeasured_.pop_front();
  next_window_ = window + 1;
  on_window_(std::move(out));
}

void WindowRows::finish(const LiveInstances& live, TimeNs end) {
  if (end > grid().edge(next_window_)) emit_until(end, live);
  emit_run(end, false);
}

void WindowRows::emit_run(TimeNs end, bool so_far) {
  Rows run = run_;
  for (const auto& [window, rows] : windows_)  // at the end without length: records that came late at its very begin
    for (const auto& [key, from] : rows) run[key].add(from);
  if (!left_out_ && !so_far)  // the parts of each instance are all there
    for (auto& [key, row] : run) row.cut = false;
  WindowSummary out;
  out.final_run = true;
  out.so_far = so_far;
  out.window = {grid().origin_ns, end};
  summarize(run, out);
  on_window_(std::move(out));
}

/// \param out its window, and whether it is the whole run, are set.
void WindowRows::summarize(const Rows& rows, WindowSummary& out) const {
  const auto summary = [&](const RegionRow& row, std::uint32_t region, std::optional<std::uint32_t> device,
                           const Peak& peak) {
    const bool process = region == kTotal;
    const RowContext of{process ? Phase::kNone : rules_.regions()[region].phase, peak, !ranges_only_, out.final_run,
                        host_seen_};
    RegionSummary& s = out.regions.emplace_back(summary_of(row, of, model_, roles_, names_));
    s.region = process ? "total" : rules_.regions()[region].name;
    s.device = device;
    s.window = out.window;
    s.phase = of.phase;
    s.named_by = process ? NamedBy::kNobody : named_by_[region];
    // A low figure is no mistake where the program itself reports its shapes, or where as much was executed.
    const bool confirmed = s.named_by == NamedBy::kInterpreter ||
                           (s.executed && s.executed->enough() && s.executed->flop < 2 * s.flop.value_or(0));
    if (s.suspect.starts_with("mfu_below") && (confirmed || process)) s.suspect.clear();
    if (process) return;
    s.nested = nested_[region];
    if (!s.is_update() || s.flop_source != FlopSource::kLowerBound) return;
    s.mfu_lower = std::nullopt;
    s.flop_source = s.hfu ? FlopSource::kExecuted : FlopSource::kNone;
  };
  RegionRow total;
  std::uint32_t total_devices = 0, last_device = 0;
  Peak total_peak;
  bool peaks_agree = true;
  for (const auto& [key, row] : rows) {
    const auto& [region, device] = key;
    const Peak& peak = devices_[device]->peak;
    if (region == kTotal) {
      total.add(row);
      total.open += row.open;
      total.flop_pending = total.flop_pending || row.flop_pending;
      total.maybe_untimed += row.maybe_untimed;
      // Device-seconds times one device's peak is right for all only while they are alike.
      peaks_agree = peaks_agree && (total_devices == 0 || (total_peak.flop_per_s == peak.flop_per_s &&
                                                           total_peak.bytes_per_s == peak.bytes_per_s));
      total_peak = peak;
      ++total_devices;
      last_device = device;
    } else if (!row.empty()) {
      summary(row, region, device, peak);
    }
  }
  if (!peaks_agree) {
    total_peak.flop_per_s = total_peak.bytes_per_s = std::nullopt;
    total_peak.by_dtype = {};
  }
  if (total_devices == 0) return;
  summary(total, kTotal, total_devices == 1 ? std::optional(last_device) : std::nullopt, total_peak);
  // Its FLOP are those of its regions.
  RegionSummary& all = out.regions.back();
  const auto doubted = std::ranges::find_if(out.regions, doubts_flop);
  if (all.mfu && all.classes_known && all.suspect.empty() && doubted != out.regions.end())
    all.suspect = doubted->suspect;
}

}  // namespace mfu
