#include "core/model/architecture.h"

#include <algorithm>
#include <span>

namespace mfu {

void add_layer(std::vector<LayerSpec>& layers, LayerSpec layer) {
  const std::int64_t more = layer.repeat;
  const auto alike = std::find_if(layers.begin(), layers.end(), [&layer](const LayerSpec& known) {
    layer.repeat = known.repeat;
    return layer == known;
  });
  if (alike != layers.end()) {
    alike->repeat += more;
    return;
  }
  layer.repeat = more;
  layers.push_back(std::move(layer));
}

LayerWeights layer_weights(const LayerSpec& layer, std::int64_t d_model) noexcept {
  LayerWeights w;
  const Count d = layer.width > 0 ? layer.width : d_model;
  const MixerSpec& m = layer.mixer;
  switch (m.kind) {
    case MixerKind::kNone:
      break;
    case MixerKind::kAttention: {
      const Count query_out = Count(m.heads) * m.qk_dim;
      const Count query = m.q_rank > 0 ? d * m.q_rank + Count(m.q_rank) * query_out : d * query_out;
      w.qkv = query;
      if (m.key_values != KeyValues::kReused) w.qkv += d * m.kv_heads * m.qk_dim;
      if (m.key_values == KeyValues::kOwn) w.qkv += d * m.kv_heads * m.v_dim;
      if (m.output_gate) w.qkv += query;
      const Count values = Count(m.heads) * m.v_dim;
      w.o_proj = m.o_rank > 0 ? values * m.o_rank + Count(m.o_groups) * m.o_rank * d : values * d;
      break;
    }
    case MixerKind::kLatent: {
      // Expanded form: every token's latent is projected up once. DeepSeek-V2 (arXiv:2405.04434) section 2.1.
      const Count query_out = Count(m.heads) * (Count(m.nope_dim) + m.rope_dim);
      w.qkv = m.q_rank > 0 ? d * m.q_rank + Count(m.q_rank) * query_out : d * query_out;
      w.qkv += d * (Count(m.kv_rank) + m.rope_dim);
      w.qkv += Count(m.kv_rank) * m.heads * (Count(m.nope_dim) + m.v_dim);
      w.o_proj = Count(m.heads) * m.v_dim * d;
      break;
    }
    case MixerKind::kMamba1:
      w.qkv = d * 2 * m.inner;
      w.other = Count(m.inner) * (Count(m.dt_rank) + Count(2) * m.state) + Count(m.dt_rank) * m.inner;
      w.o_proj = Count(m.inner) * d;
      break;
    case MixerKind::kMamba2: {
      const Count convolved = Count(m.inner) + Count(2) * m.groups * m.state;
      w.qkv = d * (Count(m.inner) + convolved + m.heads);
      w.conv = convolved * m.conv_kernel;
      w.o_proj = Count(m.inner) * d;
      break;
    }
    case MixerKind::kDeltaNet: {
      const Count keys = Count(m.heads) * m.qk_dim;
      const Count values = Count(m.kv_heads) * m.v_dim;
      w.qkv = d * (keys * 2 + values * 2 + Count(2) * m.kv_heads);
      w.conv = (keys * 2 + values) * m.conv_kernel;
      w.o_proj = values * d;
      break;
    }
    case MixerKind::kLinear:
      break;
  }
  w.conv += m.conv_weights;
  w.other += m.weights + w.conv;
  const MlpSpec& f = layer.mlp;
  if (f.experts > 0) {
    w.router = d * f.experts;
    if (f.shared_gate) w.router += d;
    w.expert = Count(f.matrices) * (f.expert_input > 0 ? Count(f.expert_input) : d) * f.expert_width;
    w.mlp_shared = Count(f.matrices) * d * f.shared_width;
  } else {
    w.mlp_dense = Count(f.matrices) * d * f.width;
  }
  if (layer.cross) {
    const Count width = Count(layer.cross->heads) * layer.cross->head_dim;
    w.cross_query = d * width;
    w.cross_output = width * d;
    const std::int64_t kv_heads = layer.cross->kv_heads > 0 ? layer.cross->kv_heads : layer.cross->heads;
    const Count input = layer.cross->kv_input > 0 ? Count(layer.cross->kv_input) : d;
    w.cross_kv = Count(2) * input * kv_heads * layer.cross->head_dim;
  }
  return w;
}

Count state_flop_per_token(const MixerSpec& m) noexcept {
  if (m.kind == MixerKind::kMamba2) return Count(4) * m.inner * m.state;
  if (m.kind == MixerKind::kDeltaNet) return Count(8) * m.kv_heads * m.qk_dim * m.v_dim;
  return m.state_flop;
}

namespace {

void add_stack(const std::vector<LayerSpec>& layers, std::int64_t d_model, ParamGroups& groups) noexcept {
  for (const LayerSpec& layer : layers) {
    const LayerWeights w = layer_weights(layer, d_model);
    const Count n = layer.stored > 0 ? layer.stored : layer.repeat;
    // The text's own copies of the matrices.
    const Count copies = layer.streams, read_after = layer.joint == Joint::kKeys ? 1 : layer.streams;
    groups.attn += n * (w.qkv * copies + w.o_proj * read_after + w.other + layer.mixer.extra_params);
    if (layer.cross) {
      groups.attn +=
          n * (w.cross_query + w.cross_output + w.cross_kv + layer.cross->extra_params + layer.cross->kv_extra_params);
    }
    if (layer.mlp.experts > 0) {
      const Count expert = w.expert + layer.mlp.expert_extra_params;
      groups.router += n * (w.router + layer.mlp.router_extra_params);
      groups.expert += n * expert * layer.mlp.experts;
      groups.inactive_expert += n * expert * (layer.mlp.experts - layer.mlp.top_k);
      groups.shared_expert += n * (w.mlp_shared + layer.mlp.shared_extra_params);
    } else {
      groups.mlp += n * (w.mlp_dense * read_after + layer.mlp.extra_params);
    }
    groups.norm += n * layer.norm_params;
  }
}

Count linear_weights(std::span<const LayerSpec> layers, std::int64_t d_model) noexcept {
  Count sum;
  for (const LayerSpec& layer : layers) {
    const LayerWeights w = layer_weights(layer, d_model);
    sum += Count(layer.repeat) * (w.qkv + w.o_proj + w.other + w.router + w.mlp_dense + w.mlp_shared +
                                  w.expert * layer.mlp.top_k + w.cross_query + w.cross_output + w.cross_kv);
  }
  return sum;
}

}  // namespace

ParamGroups count_params(const Architecture& model) noexcept {
  ParamGroups groups;
  if (model.flat_params) {
    groups.other = *model.flat_params;
    return groups;
  }
  add_stack(model.layers, model.d_model, groups);
  add_stack(model.encoder, model.encoder_d(), groups);
  groups.embed = model.embed_params;
  groups.position = model.position_params;
  groups.attn += model.attn_extra_params + model.encoder_attn_extra_params;
  groups.norm += model.norm_params + model.encoder_norm_params;
  if (!model.tied) groups.lm_head = Count(model.vocab) * model.io_width();
  groups.lm_head += model.lm_head_extra_params;
  groups.other = model.other_matmul_weights + model.other_extra_params + model.sequence_weights +
                 model.encoder_token_weights + model.context_token_weights;
  if (model.vision) groups.vision = model.vision->params;
  groups.mtp = model.mtp_params;
  return groups;
}

Count mtp_weights_per_token(const Architecture& model) noexcept {
  if (!model.trained_mtp) return 0;
  const Count d = model.d_model;
  return linear_weights({&*model.trained_mtp, 1}, model.d_model) +
         Count(model.trained_mtp->repeat) * (Count(2) * d * d + Count(model.vocab) * model.io_width());
}

Count matmul_weights_per_token(const Architecture& model) noexcept {
  if (model.flat_params) return *model.flat_params;
  return linear_weights(model.layers, model.d_model) + linear_weights(model.encoder, model.encoder_d()) +
         model.other_matmul_weights + model.front_weights + Count(model.vocab) * model.io_width();
}

}  // namespace mfu
