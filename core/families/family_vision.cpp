#include "core/families/family_vision.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace mfu {
namespace {

using nlohmann::json;

/// Edge of the image that a tower of convolutions runs on; 1 where the config does not say.
std::int64_t high_edge(RowValues& x) {
  const json* size = x.fields().find("image_size");
  return size != nullptr && size->is_number_integer() ? size->get<std::int64_t>() : 1;
}

}  // namespace

void add_projector(RowValues& x, VisionSpec& v) {
  const Count tower = v.params;
  constexpr std::pair<std::string_view, std::string_view> kMatrices[] = {
      {"projector1_in", "projector1_out"}, {"projector2_in", "projector2_out"}, {"projector3_in", "projector3_out"}};
  for (std::int64_t again = 0; again < x.value("projector_count"); ++again) {
    for (const auto& [in, out] : kMatrices) {
      if (x.value(in) <= 0 || again > 64) continue;
      v.projector.emplace_back(x.value(in), x.value(out));
      v.params += Count(x.value(in)) * x.value(out);
    }
  }
  v.params += x.value("projector_params");
  for (const auto& [in, out] : {std::pair("patch_projection1_in", "patch_projection1_out"),
                                std::pair("patch_projection2_in", "patch_projection2_out")}) {
    if (x.value(in) <= 0) continue;
    v.patch_projector.emplace_back(x.value(in), x.value(out));
    v.params += Count(x.value(in)) * x.value(out);
  }
  v.projector_params += v.params - tower;
}

VisionSpec tower_of(RowValues& x) {
  VisionSpec v;
  v.width = x.positive("width");
  if (x.flag("plain_sums")) {  // no transformer: the row says all of it
    v.image = high_edge(x);
    v.patches = x.positive("grid");
    v.image_flop = x.value("image_flop");
    v.image_core = x.value("image_attention_flop");
    v.params = x.value("tower_params");
    add_projector(x, v);
    return v;
  }
  v.layers = x.positive("layers");
  v.heads = x.positive("heads");
  v.inner = x.positive("attention_width");
  if (!x.fields().failed() && v.inner % v.heads != 0) {
    x.fields().problem(x.fields().place() + "num_attention_heads: expected a divisor of the width " +
                       std::to_string(v.inner) + ", got " + std::to_string(v.heads));
  }
  v.mlp_width = x.positive("mlp_width");
  v.mlp_matrices = x.value("mlp_matrices");
  v.patch_elements = x.positive("patch_elements");
  v.extra_tokens = x.value("extra_tokens");
  v.merge = x.positive("merge");
  v.window = x.value("window");
  v.global_layers = x.value("global_layers");
  v.image_flop = x.value("image_flop");
  v.image_core = x.value("image_attention_flop");
  v.pooling_head = x.flag("pooling_head");
  v.patch = x.value("patch");
  v.kind = static_cast<VisionKind>(std::clamp<std::int64_t>(x.value("any_size"), 0, 2));
  if (v.kind != VisionKind::kDynamic) {
    v.patches = x.positive("patches");
    v.image = x.value("patches_high") * v.patch;
  }
  const Count d = v.width, w = v.inner;
  v.params = Count(v.patch_elements) * d +
             (Count(4) * d * w + Count(v.mlp_matrices) * d * v.mlp_width + x.value("layer_params")) * v.layers +
             x.value("tower_params") + x.value("image_params");
  v.first_params = x.value("first_tower_params");
  add_projector(x, v);
  return v;
}

}  // namespace mfu
