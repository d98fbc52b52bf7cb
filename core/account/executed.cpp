#include "core/account/executed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <map>
#include <numeric>
#include <set>

#include "core/account/gemm_loss.h"
#include "core/base/number_text.h"
#include "core/rows/metrics.h"
#include "core/rows/region_totals.h"

namespace mfu {
namespace {

/// Sums of one component.
struct Sum {
  std::uint64_t calls = 0;
  DurationNs time_ns = 0;
  double flop = 0, bytes = 0, ideal_ns = 0;
  bool flop_known = false, unsized = false;
  TiledWork tiled;
  std::set<std::array<std::uint64_t, 5>> shapes;  ///< m, n, k, batch, transposes

  void add_shape(const Product& p) {
    constexpr std::size_t kMostShapes = 256;
    if (shapes.size() < kMostShapes)
      shapes.insert({p.m, p.n, p.k, p.batch, (p.transpose_a ? 1u : 0u) | (p.transpose_b ? 2u : 0u)});
  }
};

/// Products of one matrix without a model: out x in as the transposes imply.
struct OfSize {
  std::array<std::uint64_t, 4> calls{};  ///< by ProductPass
  std::array<double, 4> flop{};
};

/// ns of `flop` at the rate of their dtype; 0 where no rate is known.
double ideal_ns_of(double flop, DType operands, const Peak& peak) {
  const std::optional<double> rate = peak.rate_of(operands);
  return rate && *rate > 0 ? flop / *rate * 1e9 : 0;
}

Bound bound_of(const Sum& sum, const Peak& peak) {
  if (!sum.flop_known || !(sum.ideal_ns > 0) || !(sum.bytes > 0) || !(peak.bytes_per_s.value_or(0) > 0))
    return Bound::kUnknown;
  return sum.bytes / *peak.bytes_per_s * 1e9 > sum.ideal_ns ? Bound::kMemory : Bound::kCompute;
}

Component component_of(std::string name, std::string pass, const Sum& sum, const Peak& peak) {
  Component c;
  c.name = std::move(name);
  c.pass = std::move(pass);
  c.calls = sum.calls;
  c.shapes = sum.shapes.size();
  c.time_ns = sum.time_ns;
  if (sum.flop_known && !sum.unsized) {
    c.flop = sum.flop;
    if (sum.time_ns > 0) {
      c.flop_per_s = sum.flop / seconds(sum.time_ns);
      if (sum.ideal_ns > 0) c.of_peak = sum.ideal_ns / static_cast<double>(sum.time_ns);
    }
    c.bound = bound_of(sum, peak);
    if (sum.tiled.time_ns > 0 && c.of_peak.value_or(2) <= 1) {
      c.loss = sum.tiled.loss_ns;
      for (const auto part : kGemmLossParts) *c.loss.*part /= static_cast<double>(sum.time_ns);
      c.loss->fit(1 - *c.of_peak);
    }
  }
  return c;
}

std::string percent_of(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", part / whole * 100) : "-";
}

/// Everything that one pass over the products of a row collects.
struct Collected {
  std::map<std::pair<std::string, std::string>, Sum> sums;
  std::map<std::pair<std::uint64_t, std::uint64_t>, OfSize> by_size;
  std::map<DType, DurationNs> by_dtype;
  /// By in and out, of products that are no matrix of the model; zeros: of batches.
  std::map<std::pair<std::uint64_t, std::uint64_t>, double> unnamed_flop;
  std::set<std::uint16_t> met;  ///< matrices of the model
  /// By matrix of the model: calls and FLOP by ProductPass.
  std::map<std::uint16_t, OfSize> by_weights;
  double logits_rows = 0, logits_flop = 0;
  DurationNs logits_ns = 0;
  double expert_rows = 0, expert_flop = 0;
  bool forward_experts = false;
};

void note_for_bound(const Product& p, std::uint64_t calls, Collected& into) {
  const ProductPass pass = pass_by_transposes(p);
  if (pass == ProductPass::kUnknown) return;
  const auto key = pass == ProductPass::kForward ? std::pair(p.m, p.k)
                   : pass == ProductPass::kDgrad ? std::pair(p.k, p.m)
                                                 : std::pair(p.n, p.m);
  OfSize& size = into.by_size[key];
  size.calls[static_cast<std::size_t>(pass)] += calls;
  size.flop[static_cast<std::size_t>(pass)] += p.flop() * static_cast<double>(calls);
}

/// Where weight gradients ran: the other two products as often as these, since more is recomputation. Where only input
/// gradients did (frozen weights): forward as often as they.
double flop_once_of(const Collected& collected) {
  double sum = 0;
  for (const auto& entry : collected.by_size) {
    const auto& size = entry.second;
    const std::uint64_t forward = size.calls[1], dgrad = size.calls[2], wgrad = size.calls[3];
    const auto at_most = [&](std::size_t pass, std::uint64_t times) {
      const std::uint64_t calls = size.calls[pass];
      return calls > times ? size.flop[pass] * static_cast<double>(times) / static_cast<double>(calls)
                           : size.flop[pass];
    };
    if (wgrad != 0)
      sum += size.flop[3] + at_most(1, wgrad) + at_most(2, wgrad);
    else if (forward != 0 && dgrad != 0)
      sum += at_most(1, std::min(forward, dgrad)) + at_most(2, std::min(forward, dgrad));
    else
      sum += size.flop[1] + size.flop[2];
  }
  return sum;
}

/// FLOP of a model with these attention kernels: the forward core once, also where it was computed again, and two such
/// cores backward, of the five products that run there.
double flop_once_of(const AttentionWork& attention) {
  constexpr double kRunsBackward = 2.5, kCountsBackward = 2;
  const double backward = attention.backward_flop / kRunsBackward;
  const double forward = backward > 0 ? std::min(attention.forward_flop, backward) : attention.forward_flop;
  return forward + kCountsBackward * backward;
}

void collect(const RegionRow& row, ProductRoles& roles, const Peak& peak, Collected& into) {
  const ComponentNames& names = roles.names();
  row.products.for_each([&](const ProductKey& key, const ProductStat& stat) {
    const ProductRoles::Role role = roles.of(key.product);
    const Product& p = role.product;
    const bool sized = p.kind == Product::Kind::kSized;
    std::string name, pass;
    if (sized && role.match.known()) {
      name = names.name(role.match, key.after);
      pass = mfu::name(role.match.pass);
    } else if (sized) {
      name = name_by_size(p);
      pass = mfu::name(pass_by_transposes(p));
    } else {
      name = "unsized";
    }
    Sum& sum = into.sums[{name, pass}];
    sum.calls += stat.calls;
    sum.time_ns += stat.sum_ns;
    if (!sized) {
      sum.unsized = true;
      return;
    }
    const double calls = static_cast<double>(stat.calls), flop = p.flop() * calls;
    sum.flop_known = true;
    sum.flop += flop;
    sum.bytes += bytes_once(p) * calls;
    sum.ideal_ns += ideal_ns_of(flop, p.operands, peak);
    sum.add_shape(p);
    if (const auto& tiling = roles.tiling_of(key.product, key.form)) sum.tiled.add(p, stat, *tiling, peak);
    into.by_dtype[p.operands] += stat.matmul_ns;
    if (p.batch == 1) note_for_bound(p, stat.calls, into);
    if (!role.match.is_weight()) {
      if (!role.is_attention)
        into.unnamed_flop[p.batch == 1 ? size_by_transposes(p) : std::pair<std::uint64_t, std::uint64_t>()] += flop;
      return;
    }
    into.met.insert(role.match.weights);
    const auto of_pass = static_cast<std::size_t>(role.match.pass);
    into.by_weights[role.match.weights].calls[of_pass] += stat.calls;
    into.by_weights[role.match.weights].flop[of_pass] += flop;
    const ComponentNames::Weights& weights = names.all()[role.match.weights];
    if (role.match.pass != ProductPass::kForward) return;
    const double rows = static_cast<double>(rows_of(p, ProductPass::kForward)) * p.batch * calls;
    if (weights.rows == ComponentNames::Rows::kLogits) {
      into.logits_rows += rows;
      into.logits_flop += flop;
      into.logits_ns += stat.sum_ns;
    } else if (weights.rows == ComponentNames::Rows::kExperts && weights.names.back() == "experts down") {
      into.expert_rows += rows;
      into.expert_flop += flop;
      into.forward_experts = true;
    }
  });
}

/// Attention kernels of a row by pass, and how much of their time has known FLOP.
DurationNs add_attention(const RegionRow& row, ProductRoles& roles, KernelNames& names, const Peak& peak,
                         Collected& into, double& flop, double& ideal_ns) {
  std::array<Sum, 2> sums;  // forward, backward
  std::array<double, 2> kernels{};
  for (std::uint32_t i = 0; i < row.kernel_stats.size(); ++i) {
    const KernelStat& stat = row.kernel_stats[i];
    const auto id = static_cast<KernelNameId>(i);
    if (stat.count == 0 || names.class_of(id) != KernelClass::kAttention) continue;
    const AttentionKernel& kernel = roles.attention(id);
    const bool backward =
        kernel.part == AttentionKernel::Part::kBackward ||
        (kernel.part == AttentionKernel::Part::kHelper &&
         (names.display(id).find("bwd") != std::string::npos || names.display(id).find("Bwd") != std::string::npos));
    Sum& sum = sums[backward ? 1 : 0];
    sum.time_ns += stat.sum_ns;
    if (kernel.part == AttentionKernel::Part::kHelper) continue;
    sum.calls += stat.count;
    kernels[backward ? 1 : 0] += static_cast<double>(stat.count);
  }
  const std::array<double, 2> known_kernels{row.attention.forward_kernels, row.attention.backward_kernels};
  const std::array<double, 2> known_flop{row.attention.forward_flop, row.attention.backward_flop};
  static constexpr std::array<const char*, 2> kPasses{"fwd", "bwd"};
  DurationNs covered = 0;
  for (std::size_t b = 0; b < 2; ++b) {
    if (sums[b].time_ns == 0 && sums[b].calls == 0) continue;
    // Instances that are open have no shape yet; their kernels are not covered.
    const double share = kernels[b] > 0 ? std::min(1.0, known_kernels[b] / kernels[b]) : 0;
    covered += std::llround(static_cast<double>(sums[b].time_ns) * share);
    flop += known_flop[b];
    const double ideal = ideal_ns_of(known_flop[b], peak.dtype, peak);
    ideal_ns += ideal;
    if (share > 0.999) {
      sums[b].flop_known = true;
      sums[b].flop = known_flop[b];
      sums[b].ideal_ns = ideal;
    }
    Sum& into_sum = into.sums[{"attention", kPasses[b]}];
    into_sum.calls += sums[b].calls;
    into_sum.time_ns += sums[b].time_ns;
    into_sum.flop += sums[b].flop;
    into_sum.ideal_ns += sums[b].ideal_ns;
    into_sum.flop_known = sums[b].flop_known;
    into_sum.unsized = !sums[b].flop_known;
  }
  return covered;
}

/// Forward products twice as often as the gradients of their input, and one of the two in the backward pass:
/// activations are computed again. A teacher or a reference model runs before it. \param in_backward forward products
/// that ran in a backward pass, before the gradients of their input
void find_recomputation(const Collected& collected, const ComponentNames& names, double all_flop, double in_backward,
                        RegionSummary& s) {
  constexpr double kTwice = 1.8, kMost = 0.8;
  double again = 0, gradients = 0;
  std::string which;
  for (const auto& [weights, calls] : collected.by_weights) {
    const auto forward = static_cast<double>(calls.calls[1]), dgrad = static_cast<double>(calls.calls[2]);
    if (names.all()[weights].rows == ComponentNames::Rows::kLogits || dgrad < 2 || forward < kTwice * dgrad) continue;
    again += calls.flop[1] * dgrad / forward;
    gradients += dgrad;
    for (const std::string& name : names.all()[weights].names) which += (which.empty() ? "" : ", ") + name;
  }
  if (again > 0 && in_backward >= kMost * gradients)
    s.findings.push_back(
        {"recomputation",
         fmt::format("activations are recomputed: {} ran twice for each of their gradients, {} of the executed "
                     "matmul FLOP",
                     which, percent_of(again, all_flop))});
}

/// `value` where it is a small whole number, to 0.5 %; else 0. Padding and dropped tokens come to no such multiple.
int small_multiple(double value) {
  constexpr double kMost = 64;
  const double whole = std::round(value);
  return whole >= 2 && whole <= kMost && std::fabs(value / whole - 1) < 0.005 ? static_cast<int>(whole) : 0;
}

/// Why products ran on exactly k times, or a k-th of, the rows that the shape has; empty: they did not.
std::string cause_of_multiple(double times, const ParallelConfig& ranks) {
  if (const int k = small_multiple(times); k != 0) {
    const std::string text = fmt::format("products ran on {} times the tokens that the shape gives one rank: ", k);
    for (const auto& [key, size] : {std::pair("dp", ranks.dp), std::pair("cp", ranks.cp)})
      if (size == k)
        return text + fmt::format("parallel.{} is {}: leave it out where batch is that of one rank", key, size);
    return text + fmt::format(
                      "if a step has {0} micro-batches, set workload.grad_accum to {0}; else the batch is {0} "
                      "times as large",
                      k);
  }
  if (const int k = small_multiple(1 / times); k != 0)
    return fmt::format(
        "products ran on 1/{0} of the tokens that the shape gives one rank: if batch is that of {0} "
        "data-parallel ranks, set parallel.dp to {0}; if they share each sequence, parallel.cp",
        k);
  return "";
}

void find_padding(const RegionRow& row, const ParallelConfig& ranks, RegionSummary& s) {
  if (row.said_tokens <= 0 || row.product_rows <= 0) return;
  const double times = row.product_rows / row.said_tokens;
  if (std::string cause = cause_of_multiple(times, ranks); !cause.empty())
    s.findings.push_back({"batch", std::move(cause)});
  else if (times >= 1.02)
    s.findings.push_back({"padding", fmt::format("products ran on {} rows for every 100 tokens: {} of them are padding",
                                                 std::lround(100 * times), percent_of(times - 1, times))});
}

void find_logits(const RegionRow& row, const Collected& collected, Phase phase, double matmul_ns, RegionSummary& s) {
  if (phase != Phase::kPrefill && phase != Phase::kMixed) return;
  if (!row.sequences_known || row.sequences <= 0 || collected.logits_rows < 2 * row.sequences) return;
  s.findings.push_back(
      {"logits", fmt::format("logits of {} positions were computed for {} sequences, which need one each: {} of the "
                             "matmul time",
                             compact_text(collected.logits_rows), compact_text(row.sequences),
                             percent_of(static_cast<double>(collected.logits_ns), matmul_ns))});
}

/// Rows of expert products against the tokens that were routed, top_k to each token and layer.
void find_expert_waste(const RegionRow& row, const Collected& collected, const FlopsModel& model, double all_flop,
                       RegionSummary& s) {
  if (!collected.forward_experts || row.tokens <= 0 || row.open != 0) return;
  double routed = 0;
  for (const LayerSpec& layer : model.spec().layers)
    if (layer.mlp.experts > 0) routed += static_cast<double>(layer.repeat * layer.mlp.top_k);
  const ParallelConfig& ranks = model.options().parallel;
  routed *= static_cast<double>(row.tokens) / static_cast<double>(ranks.pp);
  // Recomputation runs them twice.
  double again = 1;
  for (const auto& [weights, calls] : collected.by_weights)
    if (calls.calls[2] > 0 && calls.calls[1] > calls.calls[2])
      again = std::max(again, std::round(static_cast<double>(calls.calls[1]) / static_cast<double>(calls.calls[2])));
  routed *= again;
  if (ranks.ep > 1 || routed <= 0 || collected.expert_rows < 1.05 * routed) return;
  s.findings.push_back(
      {"expert_capacity",
       fmt::format("experts ran on {} rows for {} routed tokens: {} of their work, {} of all matmul FLOP, is "
                   "capacity that no token fills",
                   compact_text(collected.expert_rows), compact_text(routed),
                   percent_of(collected.expert_rows - routed, collected.expert_rows),
                   percent_of(3 * collected.expert_flop * (1 - routed / collected.expert_rows), all_flop))});
}

/// Matmuls of another rate than the peak's: MFU is divided by one peak, HFU by those of what ran.
void find_dtype(const Collected& collected, const Peak& peak, RegionSummary& s) {
  const ExecutedWork& work = *s.executed;
  if (!work.enough() || work.flop <= 0 || peak.flop_per_s.value_or(0) <= 0) return;
  constexpr double kSame = 0.01;
  double all = 0;
  bool others = false;
  std::vector<std::pair<double, DType>> order;
  for (const auto& [dtype, time] : collected.by_dtype) {
    all += static_cast<double>(time);
    order.emplace_back(static_cast<double>(time), dtype);
  }
  std::ranges::stable_sort(order, std::greater{}, &std::pair<double, DType>::first);
  std::string ran;
  for (const auto& [time, dtype] : order) {
    if (time < kSame * all) continue;
    const double rate = peak.rate_of(dtype).value_or(*peak.flop_per_s);
    others = others || std::fabs(rate / *peak.flop_per_s - 1) > kSame;
    ran += fmt::format("{}{} in {} ({})", ran.empty() ? "" : ", ", percent_of(time, all), name(dtype),
                       scaled_text(rate, "FLOP/s"));
  }
  if (!others) return;
  std::string text =
      fmt::format("of the matmul time that is seen ran {}; MFU is divided by the peak of {} ({}), HFU by these", ran,
                  name(peak.dtype), scaled_text(peak.flop_per_s, "FLOP/s"));
  if (s.flop && s.mfu && s.elapsed_ns > 0) {
    s.mfu_mixed = *s.flop / work.flop * static_cast<double>(work.ideal_ns) / static_cast<double>(s.elapsed_ns);
    text += fmt::format("; MFU against these is {:.1f} %", *s.mfu_mixed * 100);
  }
  s.findings.push_back({"peak_dtype", std::move(text)});
}

/// The number of ranks whose shares of the model's matrices have the sizes of nearly all products that ran. Ranks
/// beyond the heads of keys have one each, which others have too. 0: no number has them, or the config's.
int tensor_parallel_of(const Collected& collected, const ComponentNames& names, const FlopsModel& model) {
  constexpr double kNearlyAll = 0.95;
  for (const std::int64_t ranks :
       std::initializer_list<std::int64_t>{model.options().parallel.tp, 1, 2, 4, 8, 16, 32, 64}) {
    const ComponentNames shares = ComponentNames::of(model.spec(), ranks);
    double all = 0, shared = 0;
    const auto add = [&](std::uint64_t in, std::uint64_t out, double flop) {
      all += flop;
      if (shares.has(in, out) || shares.has(out, in)) shared += flop;
    };
    for (const auto& [size, flop] : collected.unnamed_flop) add(size.first, size.second, flop);
    for (const auto& [weights, calls] : collected.by_weights)
      add(static_cast<std::uint64_t>(names.all()[weights].in), static_cast<std::uint64_t>(names.all()[weights].out),
          std::accumulate(calls.flop.begin(), calls.flop.end(), 0.0));
    if (shared >= kNearlyAll * all) return ranks == model.options().parallel.tp ? 0 : static_cast<int>(ranks);
  }
  return 0;
}

/// Less than the model's FLOP were executed although nearly all matmuls are seen: the config describes another model,
/// or a shape that did not run. Of a part of an instance FLOP are divided by time, and products lie where they ran.
void find_other_model(const RegionRow& row, const Collected& collected, const ComponentNames& names,
                      const FlopsModel& config, RegionSummary& s) {
  const double ran = s.executed->flop, model = s.flop.value_or(s.mfu_lower ? row.flop_least : 0);
  if (row.cut || s.open != 0 || s.executed->coverage() < 0.99 || ran >= 0.98 * model) return;
  std::string missing, strange;
  std::size_t shown = 0;
  for (std::uint16_t i = 0; i < names.all().size() && shown < 3; ++i) {
    const ComponentNames::Weights& w = names.all()[i];
    if (collected.met.contains(i) || w.rows != ComponentNames::Rows::kTokens) continue;
    missing += fmt::format("{}{} {}x{}", shown++ == 0 ? "" : ", ", w.names.front(), w.in, w.out);
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [size, flop] : collected.unnamed_flop)
    order.emplace_back(flop, size.first == 0 ? "batched" : fmt::format("{}x{}", size.first, size.second));
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i)
    strange += (i == 0 ? "" : ", ") + order[i].second;
  std::string text = fmt::format("{} were executed, the model has {}{}: {} fewer", scaled_text(ran, "FLOP"),
                                 s.flop ? "" : "at least ", scaled_text(model, "FLOP"), percent_of(model - ran, model));
  if (!strange.empty()) text += "; ran and is not in the config: " + strange;
  if (!strange.empty() && !missing.empty()) text += "; in the config and did not run: " + missing;
  const int ranks = tensor_parallel_of(collected, names, config);
  const int parts = strange.empty() ? small_multiple(*s.flop / ran) : 0;
  if (ranks != 0) text += fmt::format("; these are the matrices of one of {0} ranks: set parallel.tp to {0}", ranks);
  if (parts != 0)
    text += fmt::format(
        "; 1/{0} of them: if {0} ranks share the model, set parallel.pp, .cp or .dp to {0}; else batch or "
        "workload.grad_accum is {0} times too large",
        parts);
  // A figure above 100 % has that cause, where it is found.
  if (s.suspect.empty() || ranks != 0 || parts != 0) s.suspect = "config_is_not_the_model: " + text;
  s.findings.push_back({"config", "the config is not the model that runs: " + text});
}

/// A bound is checked as a figure is: no model has more than what kernels had time for.
void check_bound(const RegionRow& row, RegionSummary& s) {
  if (!s.mfu_lower || !s.suspect.empty()) return;
  const double elapsed_s = seconds(s.elapsed_ns), busy = s.classes_known ? seconds(s.busy_ns) / elapsed_s : 1;
  if (*s.mfu_lower <= 1 && (row.cut || s.open != 0 || *s.mfu_lower <= 1.01 * busy)) return;
  s.suspect = fmt::format(
      "bound_exceeds_busy_time: at least {:.3g} s of work at peak in {:.3g} s in which kernels ran: the config of "
      "another model, its tokens, or the peak",
      *s.mfu_lower * elapsed_s, busy * elapsed_s);
}

/// Why there is no HFU where nothing else gives a figure either.
void find_unseen(DurationNs no_call, DurationNs no_size, DurationNs attention, RegionSummary& s) {
  if (s.flop || s.executed->matmul_ns <= 0 || s.executed->coverage() >= ExecutedWork::kEnough) return;
  const auto matmul = static_cast<double>(s.executed->matmul_ns);
  const auto say = [&](DurationNs time, const char* what) {
    constexpr double kWorthALine = 0.01;
    if (static_cast<double>(time) >= kWorthALine * matmul)
      s.findings.push_back(
          {"not_seen", fmt::format("{} of the matmul time: {}", percent_of(static_cast<double>(time), matmul), what)});
  };
  say(no_call, "no call to cuBLAS was seen (Triton, CUTLASS, linked in, or looked up too early)");
  say(no_size, "products whose sizes are not known (they lie in device memory)");
  say(attention, "attention of lengths that nothing says");
  say(s.graph_sum_ns, "CUDA graphs recorded as one");
}

}  // namespace

void describe_matmuls(const RegionRow& row, ProductRoles& roles, KernelNames& names, const FlopsModel* model,
                      Phase phase, const Peak& peak, std::size_t most_components, RegionSummary& s) {
  const double elapsed_s = seconds(s.elapsed_ns);
  if (!s.flop && row.flop_least > 0) s.mfu_lower = share_of_peak(row.flop_least, peak.flop_per_s, elapsed_s);
  if (!s.bytes && row.bytes_least > 0) s.mbu_lower = share_of_peak(row.bytes_least, peak.bytes_per_s, elapsed_s);
  check_bound(row, s);
  s.flop_source = s.flop ? row.flop_source : s.mfu_lower ? FlopSource::kLowerBound : FlopSource::kNone;
  if (!roles.watched() || !s.classes_known) return;

  DurationNs gemm_ns = 0, attention_ns = 0;
  for (std::uint32_t i = 0; i < row.kernel_stats.size(); ++i) {
    const KernelStat& stat = row.kernel_stats[i];
    if (stat.count == 0) continue;
    const KernelClass of = names.class_of(static_cast<KernelNameId>(i));
    if (of == KernelClass::kGemm) gemm_ns += stat.sum_ns;
    if (of == KernelClass::kAttention) attention_ns += stat.sum_ns;
  }
  // Matmuls of which no call was seen are said as well: nothing of them is covered.
  if (row.products.empty() && gemm_ns + attention_ns + s.graph_sum_ns == 0) return;

  Collected collected;
  collect(row, roles, peak, collected);
  ExecutedWork work;
  TiledWork tiled;
  double ideal_ns = 0;
  DurationNs sized_ns = 0, product_ns = 0;  // of matmul kernels
  row.products.for_each([&](const ProductKey& key, const ProductStat& stat) {
    product_ns += stat.matmul_ns;
    if (roles.of(key.product).product.kind == Product::Kind::kSized) sized_ns += stat.matmul_ns;
  });
  for (const auto& [key, sum] : collected.sums) {
    work.flop += sum.flop;
    ideal_ns += sum.ideal_ns;
    tiled.add(sum.tiled);
  }
  const DurationNs attention_covered = add_attention(row, roles, names, peak, collected, work.flop, ideal_ns);
  work.covered_ns = sized_ns + attention_covered;
  work.matmul_ns = gemm_ns + attention_ns + s.graph_sum_ns;  // whose matmuls are not seen
  work.ideal_ns = std::llround(ideal_ns);
  work.tile_flop = tiled.tile_flop;
  work.tiled_ns = tiled.time_ns;
  const double flop_once = flop_once_of(collected) + flop_once_of(row.attention);  // that a model of them has at least
  if (gemm_ns > product_ns) {  // no call was seen: CUTLASS, Triton, a library that was not looked at
    Sum unseen;
    unseen.time_ns = gemm_ns - product_ns;
    collected.sums[{"not seen", ""}] = unseen;
  }
  s.executed = work;
  s.gemm_loss = gemm_loss_of(tiled, row, peak, s);
  // Where the model has more FLOP than those that were seen, kernels without a call that was seen did the rest.
  const bool rest_is_known = s.flop && s.hfu && work.coverage() < 0.99 && work.flop < *s.flop;
  if (work.enough() && elapsed_s > 0 && !rest_is_known) s.hfu = seconds(work.ideal_ns) / elapsed_s;

  ComponentSums sums;
  for (const auto& [key, sum] : collected.sums) sums.add(component_of(key.first, key.second, sum, peak));
  s.components = sums.list(most_components);

  if (!s.flop && !s.mfu_lower && flop_once > 0 && ideal_ns > 0) {
    if (elapsed_s > 0 && peak.flop_per_s.value_or(0) > 0)  // at the rates of what ran, as HFU
      s.mfu_lower = flop_once / work.flop * ideal_ns / static_cast<double>(s.elapsed_ns);
    if (s.mfu_lower) s.flop_source = FlopSource::kLowerBound;
  }
  if (s.flop_source == FlopSource::kNone && work.enough()) s.flop_source = FlopSource::kExecuted;

  find_unseen(gemm_ns - std::min(gemm_ns, product_ns), product_ns - sized_ns, attention_ns - attention_covered, s);
  find_dtype(collected, peak, s);
  if (model != nullptr) {
    const double matmul_ns = static_cast<double>(work.matmul_ns);
    find_recomputation(collected, roles.names(), work.flop, row.attention.products_again, s);
    find_padding(row, model->options().parallel, s);
    find_logits(row, collected, phase, matmul_ns, s);
    if (is_training(phase) || phase == Phase::kPrefill) find_expert_waste(row, collected, *model, work.flop, s);
    if (phase != Phase::kNone) find_other_model(row, collected, roles.names(), *model, s);
  }
}

}  // namespace mfu
