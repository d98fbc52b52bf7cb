#include "tools/report/opportunities.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/number_text.h"

namespace mfu {

namespace {

/// `1,516`.
std::string with_commas(long long number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

constexpr double kWorthSaying = 0.02;
constexpr double kNothingLeft = 0.995;
constexpr double kManyLaunches = 50;  // of an instance

const TopKernel* longest(const RegionSummary& r, KernelClass wanted) {
  const auto found = std::find_if(r.top_kernels.begin(), r.top_kernels.end(),
                                  [wanted](const TopKernel& k) { return k.kernel_class == wanted; });
  return found == r.top_kernels.end() ? nullptr : &*found;
}

class Finder {
 public:
  explicit Finder(const JobRegion& region) : name_(region.name), r_(region.sum()) {
    if (r_.mfu && r_.lost)
      shares_ = r_.lost;
    else if (r_.classes_known)
      shares_ = region.totals.weights.time_shares();
  }

  std::vector<Opportunity> find() {
    if (!shares_ || !r_.classes_known || r_.elapsed_ns <= 0) return {};
    idle();
    if (r_.graph_sum_ns == 0) other();  // else of any class
    add(TimeClass::kComm, "exposed communication", "",
        "Overlap it with compute (bucket sizes, prefetch), or move less. Look for a rank that arrives last.");
    add(TimeClass::kMemcpy, "copies", "",
        "Pinned memory and copies on a stream of their own; fewer synchronising reads of results.");
    if (r_.mfu && !(r_.bound == Bound::kMemory && r_.mbu)) matmul();
    return std::move(found_);
  }

 private:
  [[nodiscard]] double share(TimeClass c) const { return (*shares_)[static_cast<std::size_t>(c)]; }

  void add(TimeClass c, std::string_view what, const std::string& more, std::string_view advice) {
    if (share(c) < kWorthSaying) return;
    Opportunity o;
    o.region = name_;
    o.time_class = c;
    o.share = share(c);
    if (o.share < kNothingLeft) o.gain = 1 / (1 - o.share);
    o.what = fmt::format("{} {}{}", what, percent_text(o.share), more);
    o.advice = advice;
    found_.push_back(std::move(o));
  }

  void idle() {
    const double idle_s = seconds(r_.time_ns[static_cast<std::size_t>(TimeClass::kIdle)]);
    if (r_.launches == 0 || r_.instances == 0) return add(TimeClass::kIdle, "idle", "", "The GPU waits for the host.");
    const double each = static_cast<double>(r_.launches) / static_cast<double>(r_.instances);
    add(TimeClass::kIdle, "idle",
        fmt::format(": {} launch{} per instance, {} of idle time each", with_commas(std::llrint(each)),
                    std::lround(each) == 1 ? "" : "es", duration_text(idle_s / static_cast<double>(r_.launches))),
        each > kManyLaunches ? "Launch less: CUDA graphs, torch.compile, larger batches. A gap of a few µs at every "
                               "launch is the CPU."
                             : "The GPU waits for the host between few launches: data loading, synchronisation, Python "
                               "between steps.");
  }

  void other() {
    const TopKernel* kernel = longest(r_, KernelClass::kOther);
    add(TimeClass::kOther, "other kernels",
        kernel == nullptr
            ? ""
            : fmt::format("; {} alone is {}", short_kernel_name(kernel->name),
                          percent_text(static_cast<double>(kernel->sum_ns) / static_cast<double>(r_.elapsed_ns))),
        "Fuse element-wise work and normalisation (torch.compile, fused attention and optimizer): none of it counts as "
        "model FLOP.");
  }

  void matmul() {
    const TopKernel* kernel = longest(r_, KernelClass::kGemm);
    add(TimeClass::kMatmul, "matmuls below the peak",
        kernel == nullptr ? "" : "; the longest is " + short_kernel_name(kernel->name),
        "Larger or better aligned shapes (multiples of 64 and 128), a faster dtype, fewer tiny batches. Not all of it "
        "can be had: 70 to 80 % of the peak is good.");
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
    if (region.name == "total") continue;
    for (Opportunity& o : Finder(region).find())
      all.emplace_back(o.share * seconds(region.sum().elapsed_ns), std::move(o));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Opportunity> sorted;
  sorted.reserve(all.size());
  for (auto& [weight, o] : all) sorted.push_back(std::move(o));
  return sorted;
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
