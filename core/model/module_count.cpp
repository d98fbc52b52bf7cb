#include "core/model/module_count.h"

#include <utility>

#include "core/model/flop_count.h"

namespace mfu {
namespace {

std::string mixer_text(const MixerSpec& m) {
  switch (m.kind) {
    case MixerKind::kNone:
      return "";
    case MixerKind::kAttention:
    case MixerKind::kLatent: {
      const std::string text = m.kind == MixerKind::kLatent ? "latent attention" : "attention";
      return m.window > 0 ? text + " in a window of " + std::to_string(m.window) : text;
    }
    case MixerKind::kMamba1:
      return "Mamba";
    case MixerKind::kMamba2:
      return "Mamba-2";
    case MixerKind::kDeltaNet:
      return "gated delta net";
    case MixerKind::kLinear:
      return "linear mixer";
  }
  return "";
}

/// `attention + mlp`, `latent attention + 8 of 256 experts`.
std::string kind_of(const LayerSpec& layer) {
  std::string text = mixer_text(layer.mixer);
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : " + ") + more; };
  if (layer.cross) add("cross-attention");
  if (layer.mlp.experts > 0)
    add(std::to_string(layer.mlp.top_k) + " of " + std::to_string(layer.mlp.experts) + " experts");
  else if (layer.mlp.width > 0)
    add("mlp");
  return text;
}

/// Elements that a layer's operators write for a token. Where `MixerSpec::weights` says no shape, these matrices are
/// taken to read the model's width.
Count outputs_of(const LayerSpec& layer, std::int64_t d) noexcept {
  const MixerSpec& m = layer.mixer;
  Count mixer, kept;  // what is projected, and what the core writes
  switch (m.kind) {
    case MixerKind::kNone:
      break;
    case MixerKind::kAttention: {
      const Count query = Count(m.heads) * m.qk_dim, values = Count(m.heads) * m.v_dim;
      mixer = query * (m.output_gate ? 2 : 1) + m.q_rank;
      if (m.key_values != KeyValues::kReused) mixer += Count(m.kv_heads) * m.qk_dim;
      if (m.key_values == KeyValues::kOwn) mixer += Count(m.kv_heads) * m.v_dim;
      kept = values + Count(m.o_groups) * m.o_rank;
      break;
    }
    case MixerKind::kLatent:
      mixer =
          Count(m.q_rank) + Count(m.heads) * (Count(m.nope_dim) * 2 + m.rope_dim + m.v_dim) + m.kv_rank + m.rope_dim;
      kept = Count(m.heads) * m.v_dim;
      break;
    case MixerKind::kMamba1:
      mixer = Count(m.inner) * (m.conv_weights.is_zero() ? 3 : 4) + m.dt_rank + Count(2) * m.state;
      kept = m.inner;
      break;
    case MixerKind::kMamba2:
      mixer = Count(m.inner) * 3 + Count(4) * m.groups * m.state + m.heads;  // projected, and convolved
      kept = m.inner;
      break;
    case MixerKind::kDeltaNet:
      mixer = Count(m.heads) * m.qk_dim * 4 + Count(m.kv_heads) * (Count(m.v_dim) * 3 + 2);
      kept = Count(m.kv_heads) * m.v_dim;
      break;
    case MixerKind::kLinear:
      break;
  }
  Count out = mixer + kept + (m.kind == MixerKind::kNone || m.kind == MixerKind::kLinear ? 0 : d);
  out += m.weights.divided_by(d);
  if (layer.cross) out += Count(layer.cross->heads) * layer.cross->head_dim * 2 + d;
  const MlpSpec& f = layer.mlp;
  const auto mlp = [&](std::int64_t width, Count output) {
    return width > 0 ? Count(f.matrices - 1) * width + output : Count(0);
  };
  if (f.experts == 0) return out + mlp(f.width, d);
  return out + f.experts + Count(f.top_k) * mlp(f.expert_width, f.expert_input > 0 ? f.expert_input : d) +
         mlp(f.shared_width, d);
}

/// Counts a module as the difference that it makes to a model.
class Modules {
 public:
  Modules(const FlopsModel& model, const CountRequest& request)
      : model_(model.spec()), given_(model.options()), options_(given_), request_(request), bare_(model_) {
    options_.trainable.lora.reset();
    for (auto* const stack : {&bare_.layers, &bare_.encoder})
      for (LayerSpec& layer : *stack) layer.repeat = layer.stored = 0;
    bare_.trained_mtp.reset();
    if (is_training(request.phase)) repeats_ = options_.grad_accum;
  }

  std::vector<ModuleCount> all() && {
    ParamGroups outside = count_params(bare_);
    // The head of a model that is a tower counts as a part of it.
    add_images(model_.is_vision_only() ? std::exchange(outside.other, 0) : outside.vision);
    ModuleCount embedding = module("embedding", outside.embed + outside.position);
    embedding.outputs = totals_of(request_).fed * repeats_ * model_.io_width();
    add(std::move(embedding));
    add_layers("encoder layers", &Architecture::encoder, model_.encoder_d());
    add_layers("layers", &Architecture::layers, model_.d_model);
    Architecture outer = bare_;
    outer.vision.reset();
    const FlopParts head = forward(outer);
    add_products("outside of layers", outside.attn + outside.norm + outside.other, head.other, model_.d_model);
    add_products("output matrix", outside.lm_head, head.logits, model_.io_width());
    outer.trained_mtp = model_.trained_mtp;
    const FlopParts more = forward(outer);
    ModuleCount predictors = module("prediction modules", outside.mtp);
    predictors.layers = model_.mtp_layers;
    predictors.attention = more.attn_scores + more.attn_av;
    predictors.products = more.sum() - head.sum() - predictors.attention;
    predictors.outputs.reset();
    add(std::move(predictors));
    add_products("adapters", 0, count_components(model_, given_, request_).parts.sum() - forward(model_).sum(), 0);
    return std::move(modules_);
  }

 private:
  [[nodiscard]] FlopParts forward(const Architecture& model) const noexcept {
    return count_components(model, options_, request_).parts;
  }
  [[nodiscard]] static ModuleCount module(std::string name, Count params) {
    ModuleCount out;
    out.name = std::move(name);
    out.params = params;
    return out;
  }
  /// A module that multiplies rows of `width` elements; 0: of several widths.
  void add_products(std::string name, Count params, Count flop, std::int64_t width) {
    ModuleCount out = module(std::move(name), params);
    out.products = flop;
    out.outputs = width > 0 ? std::optional(flop.divided_by(2 * width)) : std::nullopt;
    add(std::move(out));
  }
  void add(ModuleCount module) {
    if (!module.params.is_zero() || !module.flop().is_zero()) modules_.push_back(std::move(module));
  }
  void add_layers(const char* name, std::vector<LayerSpec> Architecture::*stack, std::int64_t width);
  void add_images(Count params);
  void add_image(const char* name, std::int64_t layers, Count params, const VisionCount& counted, bool known);

  const Architecture& model_;
  const FlopsOptions& given_;
  FlopsOptions options_;  ///< without adapters, which are counted apart
  const CountRequest& request_;
  Architecture bare_;  ///< without layers
  Count repeats_ = 1;
  std::vector<ModuleCount> modules_;
};

void Modules::add_layers(const char* name, std::vector<LayerSpec> Architecture::*stack, std::int64_t width) {
  const FlopParts none = forward(bare_);
  for (std::size_t i = 0; i < (model_.*stack).size(); ++i) {
    Architecture one = bare_;
    LayerSpec& layer = (one.*stack)[i] = (model_.*stack)[i];
    const std::int64_t d = layer.width > 0 ? layer.width : width;
    ModuleCount module = Modules::module(name, count_params(one).total() - count_params(bare_).total());
    module.kind = kind_of(layer);
    module.layers = layer.repeat;
    const Count outputs = outputs_of(layer, d);
    const FlopParts all = forward(one);
    MixerSpec& mixer = layer.mixer;
    // One element more of a matrix is two FLOP for each row.
    mixer.weights += 1;
    const Count rows = (forward(one).other - all.other).divided_by(2);
    mixer.weights = mixer.conv_weights = mixer.conv_kernel = 0;
    module.state = forward(one).other - none.other;
    module.convolution = rows * 2 * layer_weights((model_.*stack)[i], width).conv;
    module.attention =
        all.attn_scores + all.attn_av + all.cross_scores + all.cross_av - none.attn_scores - none.attn_av;
    module.products = all.sum() - none.sum() - module.attention - module.convolution - module.state;
    module.outputs = rows * outputs;
    if (layer.cross) {
      Count keys = all.cross_qkv - rows * 2 * layer_weights(layer, width).cross_query;
      const std::int64_t input = layer.cross->kv_input > 0 ? layer.cross->kv_input : d;
      *module.outputs += keys.divided_by(2 * std::max<std::int64_t>(1, input));
    }
    add(std::move(module));
  }
}

/// \param params of the tower and its projector
void Modules::add_images(Count params) {
  if (!model_.vision) return;
  const VisionSpec& tower = *model_.vision;
  VisionSpec alone = tower, first;
  alone.projector.clear();
  alone.patch_projector.clear();
  alone.projector_flop = alone.projector_core = 0;
  first = alone;
  first.layers = first.global_layers = 0;
  const VisionCount all = count_images(model_, tower, request_), without = count_images(model_, alone, request_),
                    begins = count_images(model_, first, request_);
  params = params - tower.projector_params;
  if (tower.kind == VisionKind::kDeepEncoder) {
    add_image("SAM", 12, tower.first_params, begins, true);
    add_image("CLIP", tower.layers, params - tower.first_params, without - begins, true);
  } else {
    add_image("tower", tower.layers, params, without, tower.image_flop.is_zero());
  }
  add_image("projector", 0, tower.projector_params, all - without, tower.projector_flop.is_zero());
}

void Modules::add_image(const char* name, std::int64_t layers, Count params, const VisionCount& counted, bool known) {
  ModuleCount module = Modules::module(name, params);
  module.layers = layers;
  module.of_image = true;
  module.attention = (counted.attn_scores + counted.attn_av) * repeats_;
  module.convolution = (counted.patch_embed + counted.convolution) * repeats_;
  module.products = counted.sum() * repeats_ - module.attention - module.convolution;
  module.outputs = known ? std::optional(counted.outputs * repeats_) : std::nullopt;
  add(std::move(module));
}

}  // namespace

std::vector<ModuleCount> count_modules(const FlopsModel& model, const CountRequest& request) {
  return Modules(model, request).all();
}

}  // namespace mfu
