#include "tools/report/opportunities.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/base/number_text.h"
#include "core/rows/idle_causes.h"
#include "core/rows/layers.h"
#include "core/sinks/component_text.h"
#include "tools/job/process_life.h"

namespace mfu {
namespace {

constexpr double kWorthSaying = 0.02;
constexpr double kNothingLeft = 0.995;
constexpr double kNamed = 0.25;              // of the idle time, to advise by its cause
constexpr double kMost = 0.5;                // of a time, to speak of it as the cause
constexpr double kGood = 0.75;               // of the peak while matmuls run
constexpr DurationNs kShortKernel = 50'000;  // launching and reading operands is as much of it as computing

DurationNs mean_ns(DurationNs sum_ns, std::uint64_t count) {
  return count != 0 ? sum_ns / static_cast<DurationNs>(count) : 0;
}

/// Advice on a cause of idle time; the last is for all others.
struct IdleAdvice {
  std::string_view cause;  ///< begin of it
  std::string_view advice;
};
constexpr IdleAdvice kIdleAdvice[] = {
    {"DataLoader.__next__",
     "The GPU waits for its input: more workers (num_workers), prefetch_factor, pin_memory, less "
     "work per sample."},
    {"dist.barrier", "It waits for other ranks: the rank that comes last has the cause."},
    {"gc", "Python's garbage collector: gc.freeze() after the start, gc.disable() with gc.collect() at a chosen step."},
    {"Optimizer.step", "The optimizer runs on the CPU, or launches slowly: fused=True or foreach=True."},
    {"torch.compile", "It compiles again: dynamic shapes (mark_dynamic), a cache on disk, fewer graph breaks."},
    {"import", "Modules are imported while the GPU waits: import them before."},
    {"cu", "The host waits for the device and launches late: fewer synchronising reads (.item(), .cpu())."},
    {"", "The program is busy there while the GPU waits: less often, on another thread, or before the step."},
};

constexpr std::string_view kCheckpointAdvice =
    "Checkpoints stop the GPU: write them from another thread or process (dist.checkpoint.async_save), or less often.";

std::string_view advice_on(const std::string& cause) {
  if (saves_checkpoint(cause)) return kCheckpointAdvice;
  return std::ranges::find_if(kIdleAdvice, [&](const IdleAdvice& a) { return cause.starts_with(a.cause); })->advice;
}

const TopKernel* longest(const RegionSummary& r, KernelClass wanted) {
  const auto found = std::find_if(r.top_kernels.begin(), r.top_kernels.end(),
                                  [wanted](const TopKernel& k) { return k.kernel_class == wanted; });
  return found == r.top_kernels.end() ? nullptr : &*found;
}

class Finder {
 public:
  explicit Finder(const JobRegion& region) : name_(region.name), r_(region.sum()) {
    if (possible(r_.mfu) && r_.lost)
      shares_ = r_.lost;
    else if (r_.classes_known)
      shares_ = region.totals.weights.time_shares();
  }

  std::vector<Opportunity> find() {
    if (!shares_ || !r_.classes_known || r_.elapsed_ns <= 0) return {};
    idle();
    if (r_.graph_sum_ns == 0) other();  // else of any class
    comm();
    add(TimeClass::kMemcpy, "copies", ": nothing else ran beside them",
        "Pinned memory and copies on another stream; fewer synchronising reads of results.");
    if (possible(r_.mfu) && r_.lost && !(r_.bound == Bound::kMemory && r_.mbu)) matmul();
    return std::move(found_);
  }

 private:
  [[nodiscard]] double share(TimeClass c) const { return (*shares_)[static_cast<std::size_t>(c)]; }

  void add(TimeClass c, std::string_view what, const std::string& more, std::string_view advice) {
    if (share(c) < kWorthSaying || share(c) > 1) return;
    Opportunity o;
    o.region = name_;
    o.time_class = c;
    o.share = share(c);
    if (o.share < kNothingLeft) o.gain = 1 / (1 - o.share);
    o.what = fmt::format("{} {}{}", what, percent_text(o.share), more);
    o.advice = advice;
    found_.push_back(std::move(o));
  }

  /// By the gaps that most of it is in. Where no kind of gap is, or older rows do not say, nothing is advised.
  void idle() {
    const DurationNs idle_ns = r_.time_ns[static_cast<std::size_t>(TimeClass::kIdle)];
    const IdleGaps gaps = r_.idle_gaps.value_or(IdleGaps{});
    const auto part = [&](DurationNs ns) {
      return idle_ns > 0 ? static_cast<double>(ns) / static_cast<double>(idle_ns) : 0;
    };
    const auto say = [&](DurationNs ns, std::string_view where, std::string_view advice) {
      add(TimeClass::kIdle, "idle", fmt::format(": {} of it {}", percent_text(part(ns)), where), advice);
    };
    const bool long_ones = part(gaps.longer) >= kMost;
    const auto cause = std::find_if(r_.idle_by.begin(), r_.idle_by.end(), is_named);
    if (cause != r_.idle_by.end() && part(cause->ns) >= kNamed)
      return add(TimeClass::kIdle, "idle", ": " + idle_text(r_, 200), advice_on(cause->cause));
    if (is_checkpoint(name_)) return add(TimeClass::kIdle, "idle", "", kCheckpointAdvice);
    if (long_ones && part(gaps.before) >= kMost)
      return say(gaps.before, "before the first kernel of an instance, mostly in gaps of 1 ms and more",
                 "The GPU waits for its input: more data-loader workers, prefetching, pinned memory; or what the host "
                 "does between two instances.");
    if (long_ones && part(gaps.after) >= kMost)
      return say(
          gaps.after, "behind the last kernel of an instance, mostly in gaps of 1 ms and more",
          "The host works on after the GPU is done: logging, checkpoints, reading a loss, an optimizer on the CPU.");
    if (long_ones)
      return say(
          gaps.longer, "in gaps of 1 ms and more",
          "The host stops in between: a synchronising read (.item(), .cpu()), work on the CPU, or another process.");
    const double launches =
        r_.instances != 0 ? static_cast<double>(r_.launches) / static_cast<double>(r_.instances) : 0;
    const std::string many = launches >= 1 ? fmt::format("; {} launches per instance",
                                                         grouped(static_cast<std::uint64_t>(std::llrint(launches))))
                                           : "";
    if (part(gaps.under_20us) >= kMost)
      return say(gaps.under_20us, "in gaps below 20 µs" + many,
                 "Launching takes as long as computing: CUDA graphs, torch.compile, larger batches.");
    if (part(gaps.under_20us + gaps.under_1ms) >= kMost && gaps.under_1ms > 0)
      return say(gaps.under_20us + gaps.under_1ms, "in gaps below 1 ms" + many,
                 "The CPU is late with its launches: torch.compile, CUDA graphs, fewer and larger operators, no Python "
                 "between them.");
    add(TimeClass::kIdle, "idle", "", "Nothing ran on the GPU; how long its gaps were is not known.");
  }

  void other() {
    const TopKernel* kernel = longest(r_, KernelClass::kOther);
    if (kernel == nullptr) return add(TimeClass::kOther, "other kernels", "", "What they are is not known.");
    std::uint64_t count = 0;
    DurationNs sum_ns = 0;
    for (const TopKernel& k : r_.top_kernels) {
      if (k.kernel_class != KernelClass::kOther) continue;
      count += k.count;
      sum_ns += k.sum_ns;
    }
    const std::string name = short_kernel_name(kernel->name);
    if (mean_ns(sum_ns, count) < kShortKernel)
      return add(TimeClass::kOther, "other kernels",
                 fmt::format(": {} of {} on average, {} most of all", grouped(count),
                             duration_text(seconds(mean_ns(sum_ns, count))), name),
                 "Fuse element-wise work and normalisation (torch.compile, fused attention and optimizer): none of it "
                 "counts as model FLOP.");
    const double alone = std::min(1.0, static_cast<double>(kernel->sum_ns) / static_cast<double>(r_.elapsed_ns));
    add(TimeClass::kOther, "other kernels",
        fmt::format("; {} alone is {}, {} each", name, percent_text(alone),
                    duration_text(seconds(mean_ns(kernel->sum_ns, kernel->count)))),
        "A few long kernels that are no matmuls: look for a faster implementation of the longest.");
  }

  /// Communication that is hidden already cannot be hidden further.
  void comm() {
    if (r_.comm_kernels == 0 || r_.comm_sum_ns <= 0)
      return add(TimeClass::kComm, "exposed communication", "", "Overlap it with compute, or move less.");
    const double exposed = std::min(1.0, static_cast<double>(r_.time_ns[static_cast<std::size_t>(TimeClass::kComm)]) /
                                             static_cast<double>(r_.comm_sum_ns));
    const std::string evidence =
        fmt::format(": {} of the time of {} kernels of {} each, with no compute beside them", percent_text(exposed),
                    grouped(r_.comm_kernels), duration_text(seconds(mean_ns(r_.comm_sum_ns, r_.comm_kernels))));
    add(TimeClass::kComm, "exposed communication", evidence,
        exposed >= kMost ? "Overlap it with compute (bucket sizes, prefetch); mfu top names a rank that arrives last."
                         : "Most of it is hidden: move less (larger shards, fewer bytes), or a faster network.");
  }

  void matmul() {
    const double lost = share(TimeClass::kMatmul), reached = *r_.mfu / (*r_.mfu + lost);
    if (reached >= kGood) return;  // no kernel gets all of the peak
    const TopKernel* kernel = longest(r_, KernelClass::kGemm);
    std::string evidence =
        fmt::format(": they reach {} of it{}", percent_text(reached),
                    kernel == nullptr ? ""
                                      : fmt::format(", the longest is {}, {} each", short_kernel_name(kernel->name),
                                                    duration_text(seconds(mean_ns(kernel->sum_ns, kernel->count)))));
    if (const std::string why = gemm_loss_parts(r_, kGemmLossParts.size()); !why.empty()) evidence += "; " + why;
    if (r_.clock_ratio && *r_.clock_ratio < 0.9)
      return add(TimeClass::kMatmul, "matmuls below the peak",
                 fmt::format("{}; the clock was at {:.0f} % of the peak's", evidence, 100 * *r_.clock_ratio),
                 "Power or heat holds the clock down: the limit of the GPU, or its cooling.");
    const GemmLoss loss = r_.gemm_loss.value_or(GemmLoss{});
    if (loss.padding >= kMost * lost)
      return add(
          TimeClass::kMatmul, "matmuls below the peak", evidence,
          "Most of it is work that the model does not have: padded rows, recomputation, logits that nothing reads.");
    if (loss.tiles + loss.waves >= kMost * lost)
      return add(TimeClass::kMatmul, "matmuls below the peak", evidence,
                 "Their sizes fit neither the tiles nor the SMs: multiples of 128 or 256, another batch.");
    add(TimeClass::kMatmul, "matmuls below the peak", evidence,
        kernel != nullptr && mean_ns(kernel->sum_ns, kernel->count) < kShortKernel
            ? "They are too short to fill the GPU: larger batches, longer sequences, merged projections."
            : "Better aligned shapes (multiples of 64 and 128), a faster dtype. 70 to 80 % of the peak is good.");
  }

  std::string name_;
  const RegionSummary& r_;
  std::optional<std::array<double, kTimeClasses>> shares_;
  std::vector<Opportunity> found_;
};

}  // namespace

std::vector<Opportunity> opportunities(const Job& job) {
  std::vector<std::pair<double, Opportunity>> all;
  for (const JobRegion& region : job.regions) {
    if (region.name == "total" || layer_name(region.name)) continue;
    for (Opportunity& o : Finder(region).find())
      all.emplace_back(o.share * seconds(region.sum().elapsed_ns), std::move(o));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Opportunity> sorted;
  sorted.reserve(all.size());
  for (auto& [weight, o] : all) sorted.push_back(std::move(o));
  return sorted;
}

std::vector<Advice> advice(const Job& job) {
  static constexpr std::tuple<std::string_view, std::string_view, std::string_view> kFindings[] = {
      {"config", "config", "Correct the config: until then no MFU of this region is right."},
      {"batch", "config", "Correct workload or parallel as it says."},
      {"peak_dtype", "config", "Compare mfu_mixed with runs of other dtypes, not mfu."},
      {"not_seen", "config", "Give the shape in the range's name or in workload: then MFU needs no products."},
      {"padding", "work", "Sort sequences by length, or pack them."},
      {"recomputation", "work", "Where memory allows, recompute fewer layers, or attention alone."},
      {"logits", "work", "Compute the logits of the last position alone."},
      {"expert_capacity", "work", "Lower the capacity factor, or route without dropping."},
  };
  std::vector<Advice> all;
  for (const JobRegion& r : job.regions) {
    if (r.name == "total") continue;
    const RegionSummary& s = r.sum();
    if (!s.suspect.empty())
      all.push_back({"measure", r.name, s.suspect, "Use none of its figures before that is mended."});
    else if (!r.why_no_mfu.empty() && s.named_by != NamedBy::kDetector)
      all.push_back({"measure", r.name, "MFU is not known: " + r.why_no_mfu,
                     "Name the model (-c config.json, also for a run that is over), its shape and its peak."});
    for (const Finding& f : s.findings)
      for (const auto& [finding, kind, action] : kFindings)
        if (finding == f.kind) all.push_back({kind, r.name, f.text, std::string(action)});
  }
  for (Opportunity& o : opportunities(job)) all.push_back({"time", o.region, o.what, o.advice, o.gain});
  for (const std::string& note : job.rank_notes)
    all.push_back({"rank", "", note, "Look at that rank's host, GPU and input; mfu top shows it live."});
  constexpr std::string_view kOrder = "measure config work time rank";
  std::ranges::stable_sort(all, {}, [&](const Advice& a) { return kOrder.find(a.kind); });
  return all;
}

std::string opportunity_text(const Opportunity& o) {
  return o.region + ": " + o.what + (o.gain ? fmt::format(", up to {:.2f}x", *o.gain) : "");
}

std::string short_kernel_name(std::string_view name, std::size_t most) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  std::string shorter;
  int depth = 0;
  for (const char c : name) {
    if (c == '<' || c == '(') {
      ++depth;
    } else if (c == '>' || c == ')') {
      depth = std::max(0, depth - 1);
    } else if (depth == 0) {
      shorter.push_back(c);
    }
  }
  constexpr std::size_t kSaysSomething = 3;
  if (shorter.size() < kSaysSomething) shorter = name;
  return shorter.size() > most ? shorter.substr(0, most - 3) + "..." : shorter;
}

}  // namespace mfu
