#include "core/account/instance_products.h"

#include <algorithm>
#include <cmath>

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
}

void InstanceProducts::add(const AttentionLaunch& launch) {
  const AttentionKernel& kernel = launch.kernel;
  if (kernel.part == AttentionKernel::Part::kForward) ++forward_;
  if (kernel.part == AttentionKernel::Part::kBackward) ++backward_;
  if (launch.sequences)
    sequences_.add(*launch.sequences);
  else if (kernel.part != AttentionKernel::Part::kHelper)
    unknown_sequences_ = true;
  if (kernel.queries_per_block == 0) return;
  for (const Grids& g : grids_)
    if (g.grid == launch.grid && g.kernel.queries_per_block == kernel.queries_per_block) return;
  if (grids_.size() < kMostGrids)
    grids_.push_back({kernel, launch.grid});
  else
    more_grids_ = true;
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
  const std::optional<std::int64_t> width = score_width_.get(), batch = score_batch_.get();
  if (forward_ + backward_ != 0) {
    if (!unknown_sequences_) seen.sequences = sequences_.get();
  } else if (width && batch && heads > 0 && *width == head_dim && *batch % heads == 0) {
    seen.sequences = *batch / heads;
    seen.keys = score_keys_.get();
  }
  if (seen.rows && seen.sequences && *seen.sequences > 0 && *seen.rows % *seen.sequences == 0) {
    const std::int64_t each = *seen.rows / *seen.sequences;
    const bool fits = !more_grids_ && std::all_of(grids_.begin(), grids_.end(), [each](const Grids& g) {
      return may_have_queries(g.kernel, g.grid, each);
    });
    const std::optional<std::int64_t> queries = score_queries_.get();
    if (fits && (forward_ + backward_ != 0 || !queries || *queries == each)) seen.queries = each;
  }
  return seen;
}

}  // namespace mfu
