#include "core/model/component_names.h"

#include <algorithm>
#include <array>

namespace mfu {
namespace {

using Rows = ComponentNames::Rows;

/// Libraries pad the vocabulary to a multiple of 64 to 1024 (Megatron-LM: 128 x ranks).
constexpr std::int64_t kMostPadding = 1024;

constexpr std::int64_t share(std::int64_t whole, std::int64_t ranks) noexcept {
  return whole % ranks == 0 ? whole / ranks : whole;  // replicated where it cannot be divided
}

bool is_8_bit_float(DType dtype) noexcept { return dtype == DType::kFp8; }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "+") + name;
  return text;
}

}  // namespace

void ComponentNames::add(std::string_view name, std::int64_t out, std::int64_t in, double calls, Rows rows) {
  if (out <= 0 || in <= 0 || calls <= 0 || all_.size() >= kAttention) return;
  const auto same =
      std::find_if(all_.begin(), all_.end(), [out, in](const Weights& w) { return w.out == out && w.in == in; });
  if (same == all_.end()) {
    all_.push_back({out, in, {std::string(name)}, calls, rows});
    return;
  }
  same->calls += calls;
  if (same->rows != rows) same->rows = Rows::kOther;  // how many rows were tokens is unknown
  if (std::find(same->names.begin(), same->names.end(), name) == same->names.end()) same->names.emplace_back(name);
}

void ComponentNames::add_layer(const Architecture& model, const LayerSpec& layer, std::int64_t tp, bool encoder) {
  const auto n = static_cast<double>(layer.repeat);
  const std::int64_t d = layer.width > 0 ? layer.width : model.d_model;
  const MixerSpec& m = layer.mixer;
  const Rows rows = encoder || layer.rows_share > 1 ? Rows::kOther : Rows::kTokens;
  // A fused matrix and its parts are never both there: whichever runs, its own calls count.
  if (m.kind == MixerKind::kAttention) {
    const std::int64_t heads = share(m.heads, tp), kv_heads = std::max<std::int64_t>(1, m.kv_heads / tp);
    const std::int64_t query = heads * m.qk_dim * (m.output_gate ? 2 : 1);
    const std::int64_t key = kv_heads * m.qk_dim, value = kv_heads * m.v_dim;
    add("q", query, d, n, rows);
    add("k", key, d, n, rows);
    add("v", value, d, n, rows);
    add("qkv", query + key + value, d, n, rows);
    add("o", d, heads * m.v_dim, n, rows);
  } else if (m.kind == MixerKind::kLatent) {
    const std::int64_t heads = share(m.heads, tp), query = heads * (m.nope_dim + m.rope_dim);
    if (m.q_rank > 0) {
      add("q_a", m.q_rank, d, n, rows);
      add("q_b", query, m.q_rank, n, rows);
      add("qkv_a", m.q_rank + m.kv_rank + m.rope_dim, d, n, rows);
    } else {
      add("q", query, d, n, rows);
    }
    add("kv_a", m.kv_rank + m.rope_dim, d, n, rows);
    add("kv_b", heads * (m.nope_dim + m.v_dim), m.kv_rank, n, rows);
    add("o", d, heads * m.v_dim, n, rows);
  }
  if (layer.cross) {
    const std::int64_t width = share(layer.cross->heads, tp) * layer.cross->head_dim;
    for (const char* name : {"cross q", "cross k", "cross v"}) add(name, width, d, n, Rows::kOther);
    add("cross o", d, width, n, Rows::kOther);
  }
  const MlpSpec& f = layer.mlp;
  const auto add_mlp = [&](const std::string& prefix, std::int64_t width, double calls, Rows of) {
    if (width <= 0) return;
    if (f.matrices == 3) {
      add(prefix + "gate", width, d, calls, of);
      add(prefix + "up", width, d, calls, of);
      add(prefix + "gate+up", 2 * width, d, calls, of);
    } else {
      add(prefix + "up", width, d, calls, of);
    }
    add(prefix + "down", d, width, calls, of);
  };
  if (f.experts > 0) {
    add("router", f.experts, d, n, Rows::kOther);
    // Experts are spread whole over ranks, or each of them is divided.
    add_mlp("experts ", f.expert_width, n * static_cast<double>(f.experts), Rows::kExperts);
    if (tp > 1) add_mlp("experts ", share(f.expert_width, tp), n * static_cast<double>(f.experts), Rows::kExperts);
    add_mlp("shared ", share(f.shared_width, tp), n, rows);
  } else {
    add_mlp("", share(f.width, tp), n, rows);
  }
}

ComponentNames ComponentNames::of(const Architecture& model, std::int64_t tensor_parallel) {
  ComponentNames names;
  const std::int64_t tp = std::max<std::int64_t>(1, tensor_parallel);
  for (const LayerSpec& layer : model.layers) names.add_layer(model, layer, tp, model.is_encoder_decoder());
  for (const LayerSpec& layer : model.encoder) names.add_layer(model, layer, tp, true);
  if (model.vocab > 0) {
    names.logits_out_ = (model.vocab + tp - 1) / tp;
    names.logits_in_ = model.io_width();
    names.add("logits", names.logits_out_, names.logits_in_, 1, Rows::kLogits);
  }
  // `gate`, `up` of one size read `gate+up`, as the fused matrix does.
  return names;
}

std::uint16_t ComponentNames::find(std::uint64_t out, std::uint64_t in) const noexcept {
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (static_cast<std::uint64_t>(all_[i].out) == out && static_cast<std::uint64_t>(all_[i].in) == in)
      return static_cast<std::uint16_t>(i);
  const auto padded = static_cast<std::uint64_t>(logits_out_);
  if (logits_out_ > kMostPadding && in == static_cast<std::uint64_t>(logits_in_) && out > padded &&
      out - padded < kMostPadding)
    return find(padded, in);
  return kNoWeights;
}

ComponentNames::Match ComponentNames::match(const Product& p, WeightLayout layout) const noexcept {
  Match none;
  if (p.kind != Product::Kind::kSized || all_.empty()) return none;
  const auto by_transposes = [&](WeightLayout stored) -> Match {
    const bool out_by_in = stored == WeightLayout::kOutByIn;
    if (!p.transpose_a && p.transpose_b) return {out_by_in ? find(p.n, p.m) : find(p.m, p.n), ProductPass::kWgrad};
    if (p.transpose_b) return {};
    if (p.transpose_a == out_by_in) return {find(p.m, p.k), ProductPass::kForward};
    return {find(p.k, p.m), ProductPass::kDgrad};
  };
  Match found = by_transposes(layout);
  // The output matrix is an ordinary one in models whose layers store in x out.
  if (layout == WeightLayout::kInByOut) {
    const Match plain = by_transposes(WeightLayout::kOutByIn);
    if (plain.is_weight() && all_[plain.weights].rows == Rows::kLogits) found = plain;
  }
  if (is_8_bit_float(p.operands) && p.transpose_a && !p.transpose_b) {
    const std::array<Match, 3> all{Match{find(p.m, p.k), ProductPass::kForward},
                                   Match{find(p.k, p.m), ProductPass::kDgrad},
                                   Match{find(p.n, p.m), ProductPass::kWgrad}};
    const auto known = std::count_if(all.begin(), all.end(), [](const Match& m) { return m.is_weight(); });
    const auto first = std::find_if(all.begin(), all.end(), [](const Match& m) { return m.is_weight(); });
    found = first == all.end() ? none : *first;
    if (known > 1) found.pass = ProductPass::kUnknown;
  }
  if (p.batch > 1) {
    if (found.is_weight() && all_[found.weights].rows == Rows::kExperts) return found;
    return {kAttention, ProductPass::kUnknown};
  }
  if (!found.is_weight()) return none;
  found.logits = all_[found.weights].rows == Rows::kLogits;
  return found;
}

bool ComponentNames::shows_in_by_out(const Product& p) const noexcept {
  if (p.transpose_a || p.transpose_b || p.batch != 1) return false;
  const std::uint16_t at = find(p.m, p.k);
  return at < kAttention && all_[at].names.front() == "qkv" && all_[at].out != all_[at].in &&
         find(p.k, p.m) == kNoWeights;
}

std::string ComponentNames::name(Match match, AfterAttention after) const {
  if (match.weights == kAttention) return "attention";
  if (!match.is_weight() || match.weights >= all_.size()) return "";
  const Weights& w = all_[match.weights];
  const auto output = std::find(w.names.begin(), w.names.end(), "o");
  if (w.names.size() == 1 || output == w.names.end() || match.pass == ProductPass::kUnknown) return joined(w.names);
  // Forward: attention, then o. Backward: o's gradients, then attention, then those of q, k and v.
  const bool is_output =
      match.pass == ProductPass::kForward ? after == AfterAttention::kNext : after == AfterAttention::kLater;
  if (is_output) return *output;
  std::vector<std::string> others = w.names;
  others.erase(others.begin() + (output - w.names.begin()));
  return joined(others);
}

std::uint64_t rows_of(const Product& product, ProductPass pass) noexcept {
  return pass == ProductPass::kWgrad ? product.k : product.n;
}

ProductPass pass_by_transposes(const Product& p) noexcept {
  if (p.batch != 1 || is_8_bit_float(p.operands)) return ProductPass::kUnknown;
  if (p.transpose_a) return p.transpose_b ? ProductPass::kUnknown : ProductPass::kForward;
  return p.transpose_b ? ProductPass::kWgrad : ProductPass::kDgrad;
}

std::pair<std::uint64_t, std::uint64_t> size_by_transposes(const Product& p) noexcept {
  const ProductPass pass = pass_by_transposes(p);
  const std::uint64_t in = pass == ProductPass::kForward || pass == ProductPass::kUnknown ? p.k : p.m;
  const std::uint64_t out = pass == ProductPass::kWgrad ? p.n : pass == ProductPass::kDgrad ? p.k : p.m;
  return {in, out};
}

std::string name_by_size(const Product& p) {
  if (p.batch != 1) return "batched";
  const auto [in, out] = size_by_transposes(p);
  return std::to_string(in) + "x" + std::to_string(out);
}

double bytes_once(const Product& p) noexcept {
  if (p.kind != Product::Kind::kSized) return 0;
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const auto operand_bits = static_cast<double>(dtype_bits(p.operands));
  const auto result_bits = static_cast<double>(dtype_bits(p.result));
  return p.batch * ((m * k + k * n) * operand_bits + m * n * result_bits) / 8;
}

std::string_view name(ProductPass pass) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"", "fwd", "dgrad", "wgrad"};
  return kNames[static_cast<std::size_t>(pass)];
}

}  // namespace mfu
