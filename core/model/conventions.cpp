#include "core/model/conventions.h"

#include <array>
#include <span>

#include "core/model/flop_count.h"

namespace mfu {
namespace {

struct NamedConvention {
  std::string_view name, version;  ///< version: whose formula, as of when; empty: of this project
};
/// In the order of Convention.
constexpr std::array<NamedConvention, 9> kConventions{{
    {"exact", ""},
    {"palm", "arXiv:2204.02311"},
    {"nanogpt", "nanoGPT, estimate_mfu"},
    {"torchtitan", "torchtitan before August 2026 (#4300), without windows"},
    {"torchtitan-2026", "torchtitan since August 2026 (#4300)"},
    {"megatron", "Megatron-LM of August 2026"},
    {"kaplan", "arXiv:2001.08361"},
    {"chinchilla", "arXiv:2203.15556"},
    {"6nd", ""},
}};

HeadSums head_sums(std::span<const LayerSpec> layers) noexcept {
  HeadSums s;
  for (const LayerSpec& layer : layers) {
    if (!has_attention(layer.mixer)) continue;
    const Count heads = Count(layer.repeat) * layer.mixer.heads;
    s.heads += heads;
    s.width += heads * (Count(layer.mixer.qk_dim) + layer.mixer.v_dim);
  }
  return s;
}

/// Where num_floating_point_operations of Megatron-LM (megatron/training/training.py) differs from the matrices
/// of a layer: no router; of latent attention a norm per rank; of Mamba 2 no convolution and 7 x inner x state FLOP for
/// the scan; of a delta net, whose convolution is in its matrices, 4 x heads x (value width)^2 multiply-adds.
void bill_megatron(const LayerSpec& layer, std::int64_t d_model, ConventionTerms::Megatron& t) noexcept {
  const MixerSpec& m = layer.mixer;
  const LayerWeights w = layer_weights(layer, d_model);
  const Count n = layer.repeat;
  t.weights = t.weights - n * w.router;
  if (m.kind == MixerKind::kLatent) t.weights += n * (Count(m.q_rank) + m.kv_rank);
  if (m.kind == MixerKind::kMamba2) {
    t.weights = t.weights - n * w.conv;
    t.state += n * 7 * m.inner * m.state;
  }
  if (m.kind == MixerKind::kDeltaNet) t.state += n * 8 * m.kv_heads * m.v_dim * m.v_dim;
}

/// FLOP of attention and delta nets by torchtitan since pull request 4300 (quadratic_attention_flops_per_token,
/// delta_rule_flops_per_token): a query has at most its layer's window of keys, a token passes a state three times.
Count torchtitan_mixers(const Architecture& model, const CountRequest& r, ContextMode context) noexcept {
  Count sum = 0;
  for (const LayerSpec& layer : model.layers) {
    const MixerSpec& m = layer.mixer;
    if (m.kind == MixerKind::kDeltaNet)
      sum += Count(layer.repeat) * 6 * m.kv_heads * m.qk_dim * m.v_dim * totals_of(r).fed;
    if (!has_attention(m)) continue;
    const Count width = Count(layer.repeat) * m.heads * (Count(m.qk_dim) + m.v_dim);
    for (const SequenceGroup& g : r.sequences)
      sum += width * 2 * g.count *
             attention_pairs(series_of(g, r.passes, context), {.window = m.window}, AttentionMode::kFullWindowed);
  }
  return sum;
}

/// Forward FLOP by a named convention. `pairs_full` is the sum of fed x context over all passes, windows ignored;
/// `pairs_half2` is twice the half square: 2*n*p + n*n.
Count convention_forward(Convention c, const ConventionTerms& t, const Architecture& model, bool train, Count tokens,
                         Count pairs_full, Count pairs_half2) noexcept {
  const Count full = t.heads.width * pairs_full;
  switch (c) {
    case Convention::kExact:
      break;
    case Convention::kPalm:
      return tokens * 2 * t.active + full * 2;
    case Convention::kNanogpt:
      return tokens * 2 * (t.active - t.position) + full * 2;
    case Convention::kTorchtitan:
    case Convention::kTorchtitan2026:  // its attention is added by torchtitan_mixers
      return tokens * 2 * (t.active - (model.tied ? Count(0) : t.embed)) +
             (c == Convention::kTorchtitan ? full * 2 : Count(0));
    case Convention::kMegatron: {
      const ConventionTerms::Megatron& bill = train ? t.megatron_train : t.megatron;
      return tokens * (bill.weights * 2 + bill.state) +
             bill.heads.width * (model.is_encoder ? pairs_full * 2 : pairs_half2);
    }
    case Convention::kKaplan:
      return tokens * 2 * (t.active - t.embed - t.position - t.lm_head) + full;
    case Convention::kChinchilla:
      return tokens * 2 * t.matmul + tokens * 2 * model.vocab * model.d_model + full * 2 +
             pairs_full * 3 * t.heads.heads;
    case Convention::k6nd:
      return tokens * 2 * t.active;
  }
  return 0;
}

/// Pairs without windows, as the named conventions bill them.
struct PlainPairs {
  Count full, half2;
};

PlainPairs plain_pairs(const CountRequest& r, ContextMode context) noexcept {
  PlainPairs p;
  for (const SequenceGroup& g : r.sequences) {
    const PassSeries s = series_of(g, r.passes, context);
    const Count full = attention_pairs(s, {}, AttentionMode::kFull);
    p.full += full * g.count;
    // Per pass 2np + n^2 = 2n(p + n) - n^2.
    p.half2 += (full * 2 - Count(s.fed) * s.fed * s.passes) * g.count;
  }
  return p;
}

}  // namespace

ConventionTerms convention_terms(const Architecture& model) noexcept {
  const ParamGroups groups = count_params(model);
  ConventionTerms t;
  t.active = groups.active();
  t.position = groups.position;
  t.embed = groups.embed;
  t.lm_head = groups.lm_head;
  t.matmul = matmul_weights_per_token(model);
  t.heads = head_sums(model.layers);
  t.megatron.weights = t.matmul;
  t.megatron.heads = t.heads;
  for (const LayerSpec& layer : model.layers) bill_megatron(layer, model.d_model, t.megatron);
  t.megatron_train = t.megatron;
  if (model.trained_mtp) {
    // Each module's three norms are billed as if they were matrices.
    t.megatron_train.weights += mtp_weights_per_token(model) + Count(3) * model.d_model * model.trained_mtp->repeat;
    const HeadSums modules = head_sums({&*model.trained_mtp, 1});
    t.megatron_train.heads.width += modules.width;
    bill_megatron(*model.trained_mtp, model.d_model, t.megatron_train);
  }
  return t;
}

FlopCount count_by_convention(const Architecture& model, const ConventionTerms& terms, const FlopsOptions& o,
                              const CountRequest& r) noexcept {
  FlopCount out = count_components(model, o, r);
  if (o.convention == Convention::kExact || (model.flat_params && o.convention == Convention::k6nd)) return out;
  const bool train = is_training(r.phase);
  const PlainPairs pairs = plain_pairs(r, o.context_mode);
  Count forward = convention_forward(o.convention, terms, model, train, totals_of(r).fed, pairs.full, pairs.half2);
  if (o.convention == Convention::kTorchtitan2026) forward += torchtitan_mixers(model, r, o.context_mode);
  out.total = train ? forward * 3 * o.grad_accum : forward;
  return out;
}

std::string_view name(Convention convention) noexcept {
  return kConventions[static_cast<std::size_t>(convention)].name;
}

std::string_view version_of(Convention convention) noexcept {
  return kConventions[static_cast<std::size_t>(convention)].version;
}

std::string_view name(AttentionMode mode) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"causal", "full", "full_windowed"};
  return kNames[static_cast<std::size_t>(mode)];
}

std::optional<Convention> parse_convention(std::string_view text) noexcept {
  for (std::size_t i = 0; i < kConventions.size(); ++i)
    if (kConventions[i].name == text) return static_cast<Convention>(i);
  return text == "causal" ? std::optional(Convention::kExact) : std::nullopt;
}

}  // namespace mfu
