#include "core/families/architecture_json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/count.h"
#include "core/model/flop_count.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

Json number(Count c) { return c.fits() ? Json(c.u64()) : Json(nullptr); }

Json mixer_json(const MixerSpec& m) {
  Json j;
  switch (m.kind) {
    case MixerKind::kNone:
      j["kind"] = "none";
      return j;
    case MixerKind::kAttention:
      j["kind"] = "gqa";
      j["heads"] = m.heads;
      j["kv_heads"] = m.kv_heads;
      if (m.qk_dim == m.v_dim) {
        j["head_dim"] = m.qk_dim;
      } else {
        j["qk_dim"] = m.qk_dim;
        j["v_dim"] = m.v_dim;
      }
      if (m.output_gate) j["output_gate"] = true;
      if (m.q_rank > 0) j["q_rank"] = m.q_rank;
      if (m.o_rank > 0) j["o_rank"] = m.o_rank;
      if (m.key_values == KeyValues::kOneProjection) j["key_values"] = "one_projection";
      if (m.key_values == KeyValues::kOneVector) j["key_values"] = "one_vector";
      if (m.key_values == KeyValues::kReused) j["key_values"] = "reused";
      break;
    case MixerKind::kLatent:
      j["kind"] = "mla";
      j["heads"] = m.heads;
      j["q_rank"] = m.q_rank;
      j["kv_rank"] = m.kv_rank;
      j["nope_dim"] = m.nope_dim;
      j["rope_dim"] = m.rope_dim;
      j["v_dim"] = m.v_dim;
      break;
    case MixerKind::kMamba1:
      j = {{"kind", "mamba1"}, {"inner", m.inner}, {"state", m.state}, {"dt_rank", m.dt_rank}};
      break;
    case MixerKind::kMamba2:
      j = {{"kind", "mamba2"}, {"heads", m.heads},   {"inner", m.inner},
           {"state", m.state}, {"groups", m.groups}, {"conv_kernel", m.conv_kernel}};
      break;
    case MixerKind::kDeltaNet:
      j = {{"kind", "delta_net"},       {"key_heads", m.heads}, {"key_dim", m.qk_dim},
           {"value_heads", m.kv_heads}, {"value_dim", m.v_dim}, {"conv_kernel", m.conv_kernel}};
      break;
    case MixerKind::kLinear:
      j["kind"] = "linear";
      break;
  }
  for (const auto& [name, count] :
       {std::pair("weights", m.weights), std::pair("conv_weights", m.conv_weights),
        std::pair("state_flop", m.state_flop), std::pair("state_elements", m.state_elements)})
    if (!count.is_zero()) j[name] = number(count);
  for (const auto& [name, value] :
       {std::pair("top_keys", m.top_keys), std::pair("index_heads", m.index_heads), std::pair("index_dim", m.index_dim),
        std::pair("compress", m.compress), std::pair("position_rows", m.position_rows),
        std::pair("position_scores", m.position_scores), std::pair("window", m.window),
        std::pair("sparse_block", m.sparse_block), std::pair("random_blocks", m.random_blocks),
        std::pair("chunk", m.chunk)})
    if (value > 0) j[name] = value;
  if (m.kind == MixerKind::kAttention || m.kind == MixerKind::kLatent) j["causal"] = m.causal;
  return j;
}

Json layers_json(const std::vector<LayerSpec>& layers) {
  Json list = Json::array();
  for (const LayerSpec& layer : layers) {
    Json mlp;
    if (layer.mlp.experts > 0) {
      mlp = {{"width", layer.mlp.expert_width},
             {"matrices", layer.mlp.matrices},
             {"experts", layer.mlp.experts},
             {"top_k", layer.mlp.top_k},
             {"shared_width", layer.mlp.shared_width}};
      if (layer.mlp.shared_gate) mlp["shared_gate"] = true;
      if (layer.mlp.expert_input > 0) mlp["expert_input"] = layer.mlp.expert_input;
    } else {
      mlp = {{"width", layer.mlp.width}, {"matrices", layer.mlp.matrices}};
    }
    Json j = {{"repeat", layer.repeat}, {"attention", mixer_json(layer.mixer)}, {"mlp", mlp}};
    if (layer.width > 0) j["width"] = layer.width;
    if (layer.rows_share > 1) j["rows_share"] = layer.rows_share;
    if (layer.cross) j["cross"] = {{"heads", layer.cross->heads}, {"head_dim", layer.cross->head_dim}};
    list.push_back(std::move(j));
  }
  return list;
}

}  // namespace

std::string spec_json(const Architecture& model) {
  Json j;
  j["family"] = model.family;
  if (model.flat_params) {
    j["params"] = *model.flat_params;
    return j.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  j["d_model"] = model.d_model;
  j["vocab_size"] = model.vocab;
  j["tied"] = model.tied;
  j["layers"] = layers_json(model.layers);
  if (model.is_encoder_decoder()) j["encoder"] = layers_json(model.encoder);
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string model_json(const Architecture& model) {
  Json j;
  j["family"] = model.family;
  const ParamGroups groups = count_params(model);
  Json params;
  params["total"] = number(groups.total());
  params["active"] = number(groups.active());
  params["embedding"] = number(groups.embed);
  if (!groups.vision.is_zero()) params["vision"] = number(groups.vision);
  if (!groups.mtp.is_zero()) params["mtp"] = number(groups.mtp);
  params["non_embedding"] =
      number(groups.total() - groups.embed - groups.position - groups.lm_head - groups.vision - groups.mtp);
  params["matmul_per_token"] = number(matmul_weights_per_token(model));
  j["params"] = params;
  Count attention, ffn;
  Json group_size = nullptr;
  for (const auto* stack : {&model.layers, &model.encoder}) {
    for (const LayerSpec& layer : *stack) {
      const LayerWeights w = layer_weights(layer, model.d_model);
      attention += Count(layer.repeat) * (w.qkv + w.o_proj + w.other + w.cross_query + w.cross_output + w.cross_kv);
      ffn += Count(layer.repeat) * (w.mlp_dense + w.mlp_shared + w.expert * layer.mlp.top_k);
      if (group_size.is_null() && has_attention(layer.mixer) && layer.mixer.kv_heads > 0) {
        group_size = layer.mixer.heads / layer.mixer.kv_heads;
      }
    }
  }
  if (!model.assumed.empty()) j["assumed"] = model.assumed;
  if (!model.not_counted.empty()) j["not_counted"] = model.not_counted;
  j["gqa_group_size"] = group_size;
  j["attention_to_ffn_ratio"] = ffn.is_zero() || ffn.overflowed() || attention.overflowed()
                                    ? Json(nullptr)
                                    : Json(attention.to_double() / ffn.to_double());
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mfu
