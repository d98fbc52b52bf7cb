#include "core/families/family_vision.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace mfu {
namespace {

using nlohmann::json;

/// Edge of the image that a tower of convolutions runs on; 1 where the config does not say.
std::int64_t high_edge(Expressions& x) {
  const json* size = x.fields().find("image_size");
  return size != nullptr && size->is_number_integer() ? size->get<std::int64_t>() : 1;
}

}  // namespace

void add_projector(Expressions& x, VisionSpec& v) {
  constexpr std::pair<std::string_view, std::string_view> kMatrices[] = {
      {"j1i", "j1o"}, {"j2i", "j2o"}, {"j3i", "j3o"}};
  for (std::int64_t again = 0; again < x.value("jn"); ++again) {
    for (const auto& [in, out] : kMatrices) {
      if (x.value(in) <= 0 || again > 64) continue;
      v.projector.emplace_back(x.value(in), x.value(out));
      v.params += Count(x.value(in)) * x.value(out);
    }
  }
  v.params += x.value("jx");
  for (const auto& [in, out] : {std::pair("p1i", "p1o"), std::pair("p2i", "p2o")}) {
    if (x.value(in) <= 0) continue;
    v.patch_projector.emplace_back(x.value(in), x.value(out));
    v.params += Count(x.value(in)) * x.value(out);
  }
}

VisionSpec tower_of(Expressions& x) {
  VisionSpec v;
  v.width = x.positive("d");
  if (x.value("plain") != 0) {  // no transformer: the row says all of it
    v.image = high_edge(x);
    v.patches = x.positive("grid");
    v.image_flop = x.value("image_flop");
    v.image_core = x.value("image_core");
    v.params = x.value("out");
    add_projector(x, v);
    return v;
  }
  v.layers = x.positive("L");
  v.heads = x.positive("H");
  v.inner = x.positive("w");
  if (!x.fields().failed() && v.inner % v.heads != 0) {
    x.fields().problem(x.fields().place() + "num_attention_heads: expected a divisor of the width " +
                       std::to_string(v.inner) + ", got " + std::to_string(v.heads));
  }
  v.mlp_width = x.positive("f");
  v.mlp_matrices = x.value("m");
  v.patch_elements = x.positive("pe");
  v.extra_tokens = x.value("x");
  v.merge = x.positive("merge");
  v.window = x.value("window");
  v.global_layers = x.value("global");
  v.image_flop = x.value("image_flop");
  v.image_core = x.value("image_core");
  v.pooling_head = x.value("pooling") != 0;
  v.patch = x.value("p");
  if (x.value("dynamic") != 0) {
    v.kind = VisionKind::kDynamic;
  } else {
    v.patches = x.positive("n");
    v.image = x.value("hi") * v.patch;
  }
  const Count d = v.width, w = v.inner;
  v.params = Count(v.patch_elements) * d +
             (Count(4) * d * w + Count(v.mlp_matrices) * d * v.mlp_width + x.value("layer")) * v.layers +
             x.value("out") + x.value("image_x");
  add_projector(x, v);
  return v;
}

}  // namespace mfu
