#include "core/account/instance_products.h"

#include <algorithm>
#include <cmath>

#include "core/account/attention_lengths.h"

namespace mfu {

void InstanceProducts::add(const Product& product, ComponentNames::Match match) {
  if (match.weights == ComponentNames::kAttention) {
    if (!product.transpose_a || product.transpose_b) return;  // scores times values, or a gradient
    score_batch_.add(product.batch);
    score_queries_.add(static_cast<std::int64_t>(product.n));
    score_keys_.add(static_cast<std::int64_t>(product.m));
    score_width_.add(static_cast<std::int64_t>(product.k));
    return;
  }
  if (!match.is_weight()) return;
  const auto is_it = [match](const Calls& c) { return c.match.weights == match.weights && c.match.pass == match.pass; };
  // The next one of a layer is mostly the next one that was met.
  std::size_t at = last_ + 1 < calls_.size() ? last_ + 1 : 0;
  if (at >= calls_.size() || !is_it(calls_[at])) {
    at = static_cast<std::size_t>(std::find_if(calls_.begin(), calls_.end(), is_it) - calls_.begin());
    if (at == calls_.size()) calls_.push_back({match, 0, 0, rows_of(product, match.pass), true});
  }
  last_ = at;
  Calls& calls = calls_[at];
  const std::uint64_t rows = rows_of(product, match.pass);
  ++calls.count;
  calls.rows += rows;
  calls.same_rows = calls.same_rows && rows == calls.first_rows;
  note_order(match, calls);
}

void InstanceProducts::note_order(ComponentNames::Match match, Calls& calls) noexcept {
  const bool forward = match.pass == ProductPass::kForward;
  if (forward && match.logits) {
    passes_end_ = true;
    backward_runs_ = false;
    waiting_ = 0;
    for (Calls& c : calls_) c.in_backward = 0;
  } else if (forward && passes_end_ && backward_runs_) {
    ++calls.in_backward;
    ++waiting_;
  } else if (!forward && match.pass != ProductPass::kUnknown) {
    backward_runs_ = true;
    if (match.pass != ProductPass::kDgrad || waiting_ == 0) return;
    const auto ran = std::find_if(calls_.begin(), calls_.end(), [match](const Calls& c) {
      return c.in_backward != 0 && c.match.weights == match.weights;
    });
    if (ran != calls_.end()) --ran->in_backward, --waiting_, ++again_;
  }
}

void InstanceProducts::add(const Product& product) {
  const ProductPass pass = pass_by_transposes(product);
  if (product.batch != 1 || (pass != ProductPass::kForward && pass != ProductPass::kDgrad)) return;
  auto of = std::find_if(rows_.begin(), rows_.end(), [&](const Rows& r) { return r.rows == product.n; });
  if (of == rows_.end()) {
    if (rows_.size() == kMostRows) return;
    of = rows_.insert(rows_.end(), {product.n, 0});
  }
  of->flop += product.flop();
}

std::optional<std::int64_t> InstanceProducts::rows() const noexcept {
  const Rows* most = nullptr;
  for (const Rows& r : rows_)
    if (most == nullptr || r.flop > most->flop) most = &r;
  return most != nullptr ? std::optional(static_cast<std::int64_t>(most->rows)) : std::nullopt;
}

void InstanceProducts::clear() noexcept {
  std::vector<Calls> calls = std::move(calls_);
  std::vector<Launches> launches = std::move(launches_);
  std::vector<Rows> rows = std::move(rows_);
  calls.clear();
  launches.clear();
  rows.clear();
  *this = {};
  calls_ = std::move(calls);
  launches_ = std::move(launches);
  rows_ = std::move(rows);
}

void InstanceProducts::add_new(const AttentionLaunch& launch) {
  const AttentionKernel& kernel = launch.kernel;
  const bool helper = kernel.part == AttentionKernel::Part::kHelper;
  if (kernel.part == AttentionKernel::Part::kForward) ++forward_;
  if (kernel.part == AttentionKernel::Part::kBackward) ++backward_;
  if (launch.sequences) {
    sequences_.add(*launch.sequences);
    helpers_said_ = helpers_said_ || helper;
  } else if (kernel.said_by_helpers) {
    by_helpers_ = true;
  } else if (!helper) {
    unknown_sequences_ = true;
  }
  if (kernel.queries_per_block == 0 && kernel.head_dim == 0) return;
  for (Launches& known : launches_) {
    if (!(known.launch == launch)) continue;
    known.launch.number = launch.number;
    ++known.count;
    return;
  }
  if (launches_.size() < kMostLaunches)
    launches_.push_back({launch, 1});
  else
    more_launches_ = true;
}

AttentionWork InstanceProducts::attention(const AttentionLengths& lengths, std::optional<std::int64_t> rows) const {
  AttentionWork work;
  for (const Launches& of : launches_) {
    const std::optional<double> flop = lengths.flop(of.launch, rows);
    if (!flop) continue;
    const bool backward = of.launch.kernel.part == AttentionKernel::Part::kBackward;
    const auto count = static_cast<double>(of.count);
    (backward ? work.backward_flop : work.forward_flop) += count * *flop;
    (backward ? work.backward_kernels : work.forward_kernels) += count;
  }
  return work;
}

bool InstanceProducts::only_forward() const noexcept {
  return backward_ == 0 && !calls_.empty() && std::all_of(calls_.begin(), calls_.end(), [](const Calls& c) {
           return c.match.pass == ProductPass::kForward;
         });
}

const InstanceProducts::Calls* InstanceProducts::calls_that_say_most(const ComponentNames& names,
                                                                     ProductPass pass) const {
  const Calls* most = nullptr;
  double most_rows = 0;
  for (const Calls& c : calls_) {
    const ComponentNames::Weights& weights = names.all()[c.match.weights];
    if (c.match.pass != pass || weights.rows != ComponentNames::Rows::kTokens) continue;
    const double rows = static_cast<double>(c.rows) / weights.calls;
    if (most != nullptr && rows <= most_rows) continue;
    most = &c;
    most_rows = rows;
  }
  return most;
}

SeenShape InstanceProducts::shape(const ComponentNames& names, Phase phase, std::int64_t heads, std::int64_t head_dim,
                                  double layer_share) const {
  SeenShape seen;
  const Calls* calls = nullptr;
  if (phase == Phase::kTrain || phase == Phase::kBackward) {
    calls = calls_that_say_most(names, ProductPass::kDgrad);
    if (calls == nullptr) calls = calls_that_say_most(names, ProductPass::kWgrad);
  }
  if (calls == nullptr) calls = calls_that_say_most(names, ProductPass::kForward);
  if (calls == nullptr) calls = calls_that_say_most(names, ProductPass::kUnknown);
  if (calls != nullptr && layer_share > 0) {
    const double per_pass = names.all()[calls->match.weights].calls * layer_share;
    const double passes = static_cast<double>(calls->count) / per_pass;
    if (calls->same_rows && calls->first_rows > 0) {
      seen.rows = static_cast<std::int64_t>(calls->first_rows);
      seen.passes = std::max<std::int64_t>(1, std::llround(passes));
    } else if (calls->rows > 0) {  // passes of several sizes: one of all tokens
      seen.rows = std::llround(static_cast<double>(calls->rows) / per_pass);
      seen.passes = 1;
    }
  }
  for (const Calls& c : calls_)
    if (c.match.logits && c.match.pass != ProductPass::kWgrad && c.same_rows && c.count == 1)
      seen.logits = static_cast<std::int64_t>(c.rows);
  const std::optional<std::int64_t> width = score_width_.get(), batch = score_batch_.get();
  if (forward_ + backward_ != 0) {
    if (!unknown_sequences_ && (!by_helpers_ || helpers_said_)) seen.sequences = sequences_.get();
  } else if (width && batch && heads > 0 && *width == head_dim && *batch % heads == 0) {
    seen.sequences = *batch / heads;
    seen.keys = score_keys_.get();
  }
  if (seen.rows && seen.sequences && *seen.sequences > 0 && *seen.rows % *seen.sequences == 0) {
    const std::int64_t each = *seen.rows / *seen.sequences;
    const bool fits = !more_launches_ && std::all_of(launches_.begin(), launches_.end(), [each](const Launches& l) {
      return may_have_queries(l.launch.kernel, l.launch.grid, each);
    });
    const std::optional<std::int64_t> queries = score_queries_.get();
    if (fits && (forward_ + backward_ != 0 || !queries || *queries == each)) seen.queries = each;
  }
  return seen;
}

}  // namespace mfu
