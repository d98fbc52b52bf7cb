#include "core/families/unet.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mfu {
namespace {

using nlohmann::json;

/// Keys that change the network; every other value than these is a variant that is not known.
constexpr std::pair<const char*, const char*> kOnly[] = {{"only_cross_attention", "false"},
                                                         {"dual_cross_attention", "false"},
                                                         {"mid_block_only_cross_attention", "false"},
                                                         {"class_embeddings_concat", "false"},
                                                         {"resnet_time_scale_shift", "\"default\""},
                                                         {"time_embedding_type", "\"positional\""},
                                                         {"attention_type", "\"default\""},
                                                         {"mid_block_type", "\"UNetMidBlock2DCrossAttn\""},
                                                         {"conv_in_kernel", "3"},
                                                         {"conv_out_kernel", "3"}};
constexpr const char* kNone[] = {"class_embed_type",    "encoder_hid_dim",      "encoder_hid_dim_type",
                                 "num_class_embeds",    "time_embedding_dim",   "timestep_post_act",
                                 "num_attention_heads", "cross_attention_norm", "reverse_transformer_layers_per_block"};

class UNet {
 public:
  UNet(const Fields& f, Architecture& spec) : f_(f), spec_(spec) {}

  void build() {
    check_variant();
    channels_ = list("block_out_channels", {320, 640, 1280, 1280}, 0);
    const std::size_t levels = channels_.size();
    heads_ = list("attention_head_dim", {8}, levels);  // the number of heads, in spite of its name
    depth_ = list("transformer_layers_per_block", {1}, levels);
    text_ = list("cross_attention_dim", {1280}, levels);
    blocks_ = list("layers_per_block", {2}, levels);
    const std::vector<bool> down = attends("down_block_types", "DownBlock2D", levels);
    const std::vector<bool> up = attends("up_block_types", "UpBlock2D", levels);
    if (f_.failed()) return;
    const std::int64_t first = channels_.front();
    step_ = 4 * first;
    spec_.d_model = first;
    spec_.is_encoder = spec_.tied = true;
    const std::int64_t in = f_.integer_or("in_channels", 4, 1), out = f_.integer_or("out_channels", 4, 1);
    spec_.other_matmul_weights += Count(9) * in * first + Count(9) * first * out;
    spec_.other_extra_params += Count(first) + out;  // biases of the two
    spec_.norm_params += Count(2) * first;
    add_step_embedding(first);
    std::vector<std::int64_t> skipped = {first};
    std::int64_t width = first;
    for (std::size_t i = 0; i < levels; ++i) {
      for (std::int64_t j = 0; j < blocks_[i]; ++j) {
        add_resnet(width, channels_[i], i);
        width = channels_[i];
        if (down[i]) add_transformer(i, i);
        skipped.push_back(width);
      }
      if (i + 1 == levels) break;
      add_convolution(width, i + 1);
      skipped.push_back(width);
    }
    add_resnet(width, width, levels - 1);
    add_transformer(levels - 1, levels - 1);
    add_resnet(width, width, levels - 1);
    for (std::size_t k = 0; k < levels; ++k) {
      const std::size_t i = levels - 1 - k;
      for (std::int64_t j = 0; j <= blocks_[i]; ++j) {
        add_resnet(width + skipped.back(), channels_[i], i);
        skipped.pop_back();
        width = channels_[i];
        if (up[k]) add_transformer(i, i);
      }
      if (i > 0) add_convolution(width, i - 1);
    }
  }

 private:
  void check_variant() const {
    for (const auto& [key, value] : kOnly) {
      const json* found = f_.find(key);
      if (found != nullptr && *found != json::parse(value)) refuse(key, found);
    }
    for (const char* key : {"mid_block_type", "act_fn"}) {
      const auto found = f_.object().find(key);
      if (found != f_.object().end() && found->is_null()) refuse(key, &*found);
    }
    for (const char* key : kNone)
      if (const json* found = f_.find(key); found != nullptr) refuse(key, found);
    const std::string more = f_.text_or("addition_embed_type", "");
    if (!more.empty() && more != "text_time") refuse("addition_embed_type", f_.find("addition_embed_type"));
  }

  void refuse(const char* key, const json* value) const {
    f_.wrong(key, "the value that Stable Diffusion 1.5, 2 or XL has; this variant is not known", value);
  }

  /// A number for every level, or a list with one each. \param levels 0: as many as there are.
  std::vector<std::int64_t> list(const char* key, std::vector<std::int64_t> fallback, std::size_t levels) const {
    const json* value = f_.find(key);
    std::vector<std::int64_t> out = std::move(fallback);
    const auto usable = [](const json& v) {
      return v.is_number_integer() && v.get<std::int64_t>() > 0 && v.get<std::int64_t>() <= 1 << 20;
    };
    if (value != nullptr && value->is_array() && !value->empty() && value->size() <= 16 &&
        std::all_of(value->begin(), value->end(), usable)) {
      out = value->get<std::vector<std::int64_t>>();
    } else if (value != nullptr && usable(*value) && levels > 0) {
      out = {value->get<std::int64_t>()};
    } else if (value != nullptr) {
      f_.wrong(key, levels > 0 ? "a number > 0, or one for each level" : "a list of numbers > 0", value);
    }
    if (levels > 0 && out.size() == 1) out.resize(levels, out.front());
    if (levels > 0 && out.size() != levels) f_.wrong(key, "one number for each of block_out_channels", value);
    return out;
  }

  /// Which blocks have attention, by their types: those with `Cross` do.
  std::vector<bool> attends(const char* key, const std::string& plain, std::size_t levels) const {
    const json* value = f_.find(key);
    std::vector<bool> out(levels, true);
    if (value == nullptr) {
      (plain.starts_with("Up") ? out.front() : out.back()) = false;
      return out;
    }
    if (!value->is_array() || value->size() != levels) {
      f_.wrong(key, "one type for each of block_out_channels", value);
      return out;
    }
    for (std::size_t i = 0; i < levels; ++i) {
      const std::string type = (*value)[i].is_string() ? (*value)[i].get<std::string>() : std::string();
      out[i] = type == "CrossAttn" + plain;
      if (!out[i] && type != plain) f_.wrong(key, plain + " or CrossAttn" + plain, &(*value)[i]);
    }
    return out;
  }

  /// The step, and with SDXL the pooled text and sizes: once per picture.
  void add_step_embedding(std::int64_t first) {
    const auto linear = [this](std::int64_t in, std::int64_t out) {
      spec_.sequence_weights += Count(in) * out;
      spec_.other_extra_params += out;
    };
    linear(first, step_);
    linear(step_, step_);
    if (const std::int64_t guidance = f_.integer_or("time_cond_proj_dim", 0); guidance > 0)
      spec_.sequence_weights += Count(guidance) * first;
    if (f_.text_or("addition_embed_type", "") == "text_time") {
      linear(f_.require("projection_class_embeddings_input_dim"), step_);
      linear(step_, step_);
    }
  }

  LayerSpec at_level(std::size_t level, std::int64_t width) const {
    LayerSpec layer;
    layer.width = width;
    layer.rows_share = std::int64_t{1} << (2 * level);
    layer.mixer.kind = MixerKind::kLinear;
    return layer;
  }

  /// Two 3 x 3 convolutions, the step between them, and a 1 x 1 one around where the width changes.
  void add_resnet(std::int64_t in, std::int64_t out, std::size_t level) {
    LayerSpec layer = at_level(level, out);
    const Count around = in != out ? Count(in) * out : Count(0);
    layer.mixer.weights = Count(9) * in * out + Count(9) * out * out + around;
    layer.mixer.extra_params = Count(in != out ? 3 : 2) * out;
    layer.norm_params = Count(2) * in + Count(2) * out;
    spec_.sequence_weights += Count(step_) * out;
    spec_.other_extra_params += out;
    add_layer(spec_.layers, layer);
  }

  /// The 3 x 3 convolution that leads to `level`.
  void add_convolution(std::int64_t width, std::size_t level) {
    LayerSpec layer = at_level(level, width);
    layer.mixer.weights = Count(9) * width * width;
    layer.mixer.extra_params = width;
    add_layer(spec_.layers, layer);
  }

  /// Attention among the pixels of a level, then to the text, and a gated MLP; one matrix in front of all such blocks
  /// and one behind.
  void add_transformer(std::size_t level, std::size_t of) {
    const std::int64_t d = channels_[of], heads = heads_[of];
    if (d % heads != 0) {
      f_.wrong("attention_head_dim", "a divisor of the level's channels", f_.find("attention_head_dim"));
      return;
    }
    LayerSpec around = at_level(level, d);
    around.mixer.weights = Count(2) * d * d;
    around.mixer.extra_params = Count(2) * d;
    around.norm_params = Count(2) * d;
    add_layer(spec_.layers, around);
    LayerSpec layer = at_level(level, d);
    layer.repeat = depth_[of];
    MixerSpec& m = layer.mixer;
    m.kind = MixerKind::kAttention;
    m.causal = false;
    m.heads = m.kv_heads = heads;
    m.qk_dim = m.v_dim = d / heads;
    m.extra_params = d;
    layer.cross = CrossSpec{heads, d / heads, heads, text_[of], d, {}};
    layer.mlp.matrices = 3;
    layer.mlp.width = 4 * d;
    layer.mlp.extra_params = Count(9) * d;
    layer.norm_params = Count(6) * d;
    add_layer(spec_.layers, layer);
  }

  const Fields& f_;
  Architecture& spec_;
  std::vector<std::int64_t> channels_, heads_, depth_, text_, blocks_;
  std::int64_t step_ = 0;
};

}  // namespace

void build_unet(const Fields& f, Architecture& spec) { UNet(f, spec).build(); }

}  // namespace mfu
