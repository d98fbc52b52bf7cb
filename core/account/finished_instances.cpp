// The part of the ledger that gives what an instance did to the rows of the windows that it ran in.
#include <algorithm>
#include <cmath>

#include "core/account/ledger.h"

namespace mfu {

namespace {
constexpr std::size_t kFinishedKept = 256;
}  // namespace

std::vector<std::pair<std::uint32_t, double>> Ledger::devices_of(const Instance& instance) const {
  std::vector<std::pair<std::uint32_t, double>> found;
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
  // On several devices the work went where the matmuls ran; nobody says more than that.
  for (auto& [d, part] : found) {
    const InstanceOnDevice& share = instance.shares[d];
    part = matmul > 0    ? static_cast<double>(share.matmul_sum_ns) / matmul
           : kernels > 0 ? static_cast<double>(share.kernel_sum_ns) / kernels
                         : 1.0 / static_cast<double>(found.size());
  }
  return found;
}

void Ledger::add_times(RegionRow& into, const WindowSlice& portion) const noexcept {
  for (std::size_t c = 0; c < kTimeClasses; ++c) into.time_ns[c] += portion.time_ns[c];
  into.busy_ns += portion.busy_ns;
  into.kernel_sum_ns += portion.kernel_sum_ns;
}

void Ledger::add_work(const Instance& instance, std::uint32_t device, std::int64_t window, const Work& work,
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

void Ledger::account(Instance& instance) {
  if (instance.closed_by_exit && instance.phase != Phase::kNone) {
    counters_.add(Counter::kInstancesUnclosed);
    return;
  }
  // Its products are all there now: what its range and the config left open, and how many passes a step had.
  if (!instance.by_parts() && instance.kind != InstanceKind::kDetected) {
    if (!instance.work.flop_known || (is_training(instance.phase) && instance.products))
      resolve_work(instance, true);
    else
      note_seen(instance, seen_shape(instance));
  }
  count_attention(instance);
  Work left = instance.work;  // what no window was given yet
  if (instance.by_parts()) left = instance.parts;
  std::int64_t tokens_left = instance.work.tokens;
  const auto devices = devices_of(instance);
  for (std::size_t k = 0; k < devices.size(); ++k) {
    const auto [d, part] = devices[k];
    keep_over(instance, d);
    if (observer_ != nullptr) observer_->on_finished(instance, d, part);
    InstanceOnDevice& share = instance.shares[d];
    DurationNs elapsed_left = 0;
    for (const WindowSlice& p : share.portions) elapsed_left += p.elapsed_ns();
    const std::int64_t end_window = window_of_end(share);
    // Nested ranges of the same region already put their FLOP into earlier windows. Otherwise those windows got time
    // without FLOP, and the FLOP go to the run's totals.
    const DurationNs base = instance.by_parts() ? elapsed_left : share.elapsed_ns;
    double given = 0;
    for (const WindowSlice& p : share.portions) {
      add_times(row(p.window, raw(instance.region), d), p);
      const double of_time = base > 0 ? static_cast<double>(p.elapsed_ns()) / static_cast<double>(base) : 0.0;
      if (of_time > 0) {
        add_work(instance, d, p.window, left, part * of_time, of_time < 1);
        add_attention(instance, d, p.window, part * of_time);
      }
      given += of_time;
    }
    if (base == 0) {
      add_work(instance, d, end_window, left, part, false);
      add_attention(instance, d, end_window, part);
    } else if (!instance.by_parts() && elapsed_left < base) {
      add_work(instance, d, next_window_ - 1, left, part * (1 - given), false);
      add_attention(instance, d, next_window_ - 1, part * (1 - given));
    }

    RegionRow& at_end = row(end_window, raw(instance.region), d);
    ++at_end.instances;
    at_end.keep_least_trusted(instance.shape_source);
    const std::int64_t tokens =
        k + 1 == devices.size()
            ? tokens_left
            : static_cast<std::int64_t>(std::llround(static_cast<double>(instance.work.tokens) * part));
    tokens_left -= tokens;
    at_end.tokens += tokens;
    note_rows(instance, part, at_end);
    if (share.active || devices.size() == 1) add_latency(instance, d, part, tokens, at_end);
    bool inside_work = false;  // its tokens are those of a region around it
    for (const Instance* outer = instance.parent; outer != nullptr; outer = outer->parent)
      inside_work = inside_work || outer->phase != Phase::kNone;
    if (!inside_work) row(end_window, kTotal, d).tokens += tokens;
    if (instance.top_level()) {
      ++row(end_window, kTotal, d).instances;
      mark_overlaps(instance, d, end_window);
    }
  }
}

void Ledger::add_latency(const Instance& instance, std::uint32_t device, double part, std::int64_t tokens,
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
  if (model_ && instance.work.flop_known) {
    ended.flop = instance.work.flop * part;
    if (instance.work.bytes_known) ended.bytes = instance.work.bytes * part;
  }
  into.latency.add(ended);
}

void Ledger::mark_overlaps(const Instance& instance, std::uint32_t device, std::int64_t window) {
  const InstanceOnDevice& share = instance.shares[device];
  if (!share.active) return;
  std::deque<Finished>& finished = devices_[device]->finished;
  for (const Finished& other : finished) {
    if (other.thread == instance.thread || other.end_ns <= share.begin_ns || share.end_ns <= other.begin_ns) continue;
    row(window, raw(instance.region), device).overlapped = true;
    row(other.window, other.region, device).overlapped = true;
  }
  finished.push_back({share.begin_ns, share.end_ns, instance.thread, raw(instance.region), window});
  if (finished.size() > kFinishedKept) finished.pop_front();
}

}  // namespace mfu
