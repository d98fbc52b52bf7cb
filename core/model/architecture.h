// A model as the FLOP code sees it: stacks of layers with their dimensions, and nothing of where they came from.
// The family readers (core/model_families.*) and the project's own schema both produce exactly this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/count.h"
#include "core/base/dtype.h"

namespace mfu {

/// How a layer mixes tokens.
enum class MixerKind : std::uint8_t {
  kNone,
  kAttention,  ///< multi-head, grouped or multi-query
  kLatent,     ///< multi-head latent attention (DeepSeek-V2, arXiv:2405.04434)
  kMamba1,     ///< selective state space, elementwise scan (arXiv:2312.00752)
  kMamba2,     ///< state space duality (arXiv:2405.21060)
  kDeltaNet,   ///< gated delta net (Qwen3-Next linear attention)
  kLinear,     ///< any other mixer without pairs: `weights`, `conv_weights` and `state_flop` say what it does
};

/// How an attention layer makes and keeps keys and values.
enum class KeyValues : std::uint8_t {
  kOwn,            ///< two projections, both cached
  kOneProjection,  ///< values are the keys' projection; both are cached (Gemma 4)
  kOneVector,      ///< keys are the values, cached once (DeepSeek-V4)
  kReused,         ///< those of a layer below: no projection, nothing new cached (Gemma 3n)
};

/// Of latent attention; low-rank queries also elsewhere.
struct LatentDims {
  std::int64_t q_rank = 0;   ///< `q_lora_rank`; 0: plain query projection
  std::int64_t kv_rank = 0;  ///< `kv_lora_rank`
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;

  friend bool operator==(const LatentDims&, const LatentDims&) = default;
};

/// Of a state space and of a delta net, whose heads and qk_dim are those of keys, kv_heads and v_dim those of values.
struct StateDims {
  std::int64_t inner = 0;  ///< expanded width
  std::int64_t state = 0;  ///< state size per channel
  std::int64_t groups = 0;
  std::int64_t conv_kernel = 0;
  std::int64_t dt_rank = 0;

  friend bool operator==(const StateDims&, const StateDims&) = default;
};

/// Token mixing of one layer. Dimensions in elements; zero: not there.
struct MixerSpec : LatentDims, StateDims {
  MixerKind kind = MixerKind::kNone;
  bool causal = true;
  bool output_gate = false;        ///< the query projection also makes a gate of the same width
  std::int64_t heads = 0;          ///< query heads
  std::int64_t kv_heads = 0;       ///< key/value heads; latent attention: 1, the shared latent
  std::int64_t qk_dim = 0;         ///< width of a query and key head
  std::int64_t v_dim = 0;          ///< width of a value head
  std::int64_t window = 0;         ///< keys a query sees, itself included, or to each side if not causal; 0: all
  std::int64_t chunk = 0;          ///< a query sees keys of the same chunk only (Llama 4 local layers); 0: all
  std::int64_t sparse_block = 0;   ///< block-sparse attention (BigBird, arXiv:2007.14062): tokens of a block; 0: none
  std::int64_t random_blocks = 0;  ///< beside the first, the last and the neighbours
  KeyValues key_values = KeyValues::kOwn;
  std::int64_t o_rank = 0;    ///< output projection by groups of heads to this width each, then one matrix; 0: plain
  std::int64_t o_groups = 0;  ///< how many such groups
  // Sparse attention: an index of `index_heads` x `index_dim` scores all keys, the core sees the best `top_keys`.
  std::int64_t top_keys = 0;  ///< 0: all
  std::int64_t index_heads = 0;
  std::int64_t index_dim = 0;
  bool index_plain = false;   ///< the scores of its heads are added up, not weighed by one more product
  std::int64_t compress = 0;  ///< beside the window, a query sees one entry per so many tokens, at most `top_keys`
                              ///< of them where there is an index, which then scores these (DeepSeek-V4); 0: none
  // Relative positions whose vectors are projected and scored beside the keys (DeBERTa, arXiv:2006.03654; XLNet).
  std::int64_t position_rows = 0;         ///< position vectors that a query meets; 0: none
  std::int64_t position_scores = 0;       ///< products with them: content to position, position to content
  std::int64_t position_projections = 0;  ///< width x width matrices that they pass in each layer
  bool positions_grow = false;            ///< as many as twice the sequence has tokens, at most `position_rows`
  bool positions_per_sequence = false;    ///< projected once per sequence, not once per pass
  Count weights;         ///< further matrices that every token is multiplied with: gates, low-rank pieces, the index
  Count conv_weights;    ///< elements of convolutions, per token
  Count state_flop;      ///< kLinear: state update and readout, per token [FLOP]
  Count state_elements;  ///< kLinear: recurrent state per sequence
  Count extra_params;    ///< biases, sinks, decay vectors: stored, never multiplied as a matrix

  friend bool operator==(const MixerSpec&, const MixerSpec&) = default;
};

/// Attention over the encoder's output (decoder layers of encoder-decoder models).
struct CrossSpec {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t kv_heads = 0;  ///< 0: `heads`
  std::int64_t kv_input = 0;  ///< width of what is attended to; 0: that of the model
  Count extra_params;         ///< biases of the query and output projection
  Count kv_extra_params;      ///< biases of the key and value projection

  friend bool operator==(const CrossSpec&, const CrossSpec&) = default;
};

/// Feed-forward part of one layer: dense, or routed experts with or without shared ones.
struct MlpSpec {
  std::int64_t matrices = 2;  ///< 2 plain, 3 gated
  std::int64_t width = 0;     ///< of a dense MLP; 0: none
  std::int64_t experts = 0;   ///< routed experts; 0: dense
  std::int64_t top_k = 0;
  std::int64_t expert_width = 0;
  std::int64_t expert_input = 0;  ///< width that routed experts read and write; 0: that of the model
  std::int64_t shared_width = 0;  ///< total width of the shared experts
  bool shared_gate = false;       ///< a d x 1 gate on the shared expert (Qwen2-MoE, Qwen3-Next)
  Count extra_params;             ///< biases of the dense MLP
  Count expert_extra_params;      ///< biases of one routed expert
  Count shared_extra_params;
  Count router_extra_params;  ///< router bias, score correction

  friend bool operator==(const MlpSpec&, const MlpSpec&) = default;
};

/// How a layer of a diffusion transformer takes the text in beside the image tokens.
enum class Joint : std::uint8_t {
  kNone,
  kBoth,  ///< image and text tokens in one sequence: both attend to both, both are projected
  kKeys,  ///< likewise, but only the image tokens are read afterwards (the last layer of SD3)
};

/// `repeat` equal layers of a stack. The order of layers is not kept: no count depends on it.
struct LayerSpec {
  std::int64_t repeat = 1;
  std::int64_t width = 0;       ///< of this layer where it is not that of the model (UNets); 0: the model's
  std::int64_t rows_share = 1;  ///< one row for so many tokens: a picture halved from level to level, pooled text
  std::int64_t stored = 0;      ///< copies of the weights where layers share them (ALBERT); 0: one per layer
  MixerSpec mixer;
  MlpSpec mlp;
  std::optional<CrossSpec> cross;
  Joint joint = Joint::kNone;
  bool with_images = false;  ///< runs only where there are images to attend to (Llama 3.2 Vision)
  std::int64_t streams = 1;  ///< 2: text tokens have separate matrices, as large as those of image tokens
  Count norm_params;

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

/// Adds `layer`, all its repeats: to a layer of `layers` that is equal but for `repeat`, where there is one.
void add_layer(std::vector<LayerSpec>& layers, LayerSpec layer);

/// How an image becomes tokens.
enum class VisionKind : std::uint8_t {
  kFixed,       ///< ViT on a fixed image size: CLIP, SigLIP, ViT, Llama 4
  kDynamic,     ///< Qwen2-VL and Qwen2.5-VL: patches of the image as it is, attention per image or per window
  kDeepEncoder  ///< DeepSeek-OCR: SAM, two convolutions, CLIP on their output
};

/// A vision tower with its projector.
struct VisionSpec {
  VisionKind kind = VisionKind::kFixed;
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t mlp_width = 0;
  std::int64_t mlp_matrices = 2;
  std::int64_t patch_elements = 0;  ///< channels x patch x patch x temporal: inputs of the patch embedding
  std::int64_t patch = 0;           ///< patch edge [pixel]
  std::int64_t image = 0;           ///< image edge that a fixed tower runs on [pixel]
  std::int64_t extra_tokens = 0;    ///< class token
  bool pooling_head = false;        ///< SigLIP: one learned query attends over the patches, then an MLP
  std::int64_t merge = 1;           ///< patches merged into one token along each edge
  std::int64_t pooled_tokens = 0;   ///< tokens after pooling; 0: no pooling
  std::vector<std::pair<std::int64_t, std::int64_t>> patch_projector;  ///< matrices (in, out) before patches merge
  std::int64_t window = 0;         ///< attention window edge [patch]; 0: whole image
  std::int64_t global_layers = 0;  ///< layers without the window
  std::int64_t inner = 0;          ///< width of all attention heads together; 0: `width`
  std::int64_t patches = 0;        ///< patches of a fixed image; 0: (image / patch)^2
  Count image_flop;                ///< per image, besides patches, layers and projector: stems, heads, poolers [FLOP]
  Count image_core;                ///< likewise, of products of two activations in attention [FLOP]
  Count projector_flop, projector_core;                          ///< likewise, of the projector
  std::vector<std::pair<std::int64_t, std::int64_t>> projector;  ///< matrices (in, out) applied to every output token
  Count params;                                                  ///< every stored tensor of tower and projector
  Count projector_params;                                        ///< the part of it that is the projector
  Count first_params;  ///< of a deep encoder: the part that is SAM and the convolutions behind it
};

/// How many bits a stored weight takes, as an exact fraction (block scales included).
struct WeightFormat {
  std::string name = "bf16";
  std::int64_t bits_num = 16;
  std::int64_t bits_den = 1;
};

/// Which weights a quantised checkpoint stores how.
struct WeightStorage {
  WeightFormat plain;      ///< everything that is not quantised
  WeightFormat quantised;  ///< the matrices below
  bool attention = false;
  bool mlp = false;      ///< dense MLPs and shared experts
  bool experts = false;  ///< routed experts
  bool known = true;     ///< false: the checkpoint's method is unknown, so bytes are too
  std::string method;    ///< `quant_method`; empty: not quantised
};

/// The parts that make up `params`. All exact.
struct ParamGroups {
  Count embed, position, attn, mlp, expert, shared_expert, router, norm, lm_head, other, vision, mtp;
  Count inactive_expert;  ///< the part of `expert` that one token does not use

  [[nodiscard]] Count text_total() const noexcept {
    return embed + position + attn + mlp + expert + shared_expert + router + norm + lm_head + other;
  }
  [[nodiscard]] Count total() const noexcept { return text_total() + vision + mtp; }
  [[nodiscard]] Count active() const noexcept { return text_total() - inactive_expert; }
};

/// Parameters and matrices outside of the layers.
struct OuterWeights {
  Count embed_params;     ///< input table
  Count position_params;  ///< learned positions, token types
  Count lm_head_extra_params;
  Count norm_params;  ///< of the decoder, outside layers
  Count encoder_norm_params;
  Count attn_extra_params;  ///< outside layers: T5's decoder position bias table
  Count encoder_attn_extra_params;
  Count other_matmul_weights;  ///< applied to every token besides the layers: OPT in/out projection, BERT transform
  Count other_extra_params;
  Count front_weights;           ///< per token, of matrices that `other_extra_params` holds: convolutions that run
                                 ///< at another rate than tokens
  Count front_sequence_weights;  ///< likewise, per sequence: the first token's surplus
  Count sequence_weights;        ///< multiplied once per sequence: poolers, heads of classifiers
  Count context_token_weights;   ///< multiplied once per text token of a diffusion transformer
  Count encoder_token_weights;   ///< multiplied once per encoder token, besides its layers: an audio encoder's
                                 ///< convolutions
};

/// A whole model.
struct Architecture : OuterWeights {
  std::string family;  ///< `model_type`, `nanogpt`, or `custom` for the own schema
  std::int64_t d_model = 0;
  std::int64_t vocab = 0;        ///< rows of the output matrix; 0: no output matrix
  std::int64_t embed_width = 0;  ///< width of the input table and the output matrix when not d_model (OPT-350m)
  bool tied = false;
  bool is_encoder = false;               ///< bidirectional, no KV cache, head on every position (BERT)
  std::vector<LayerSpec> layers;         ///< the decoder, or the only stack
  std::vector<LayerSpec> encoder;        ///< encoder-decoder models
  std::int64_t encoder_width = 0;        ///< of the encoder's layers when not d_model
  std::vector<std::string> assumed;      ///< assumptions of the reader, a sentence each; empty: none
  std::vector<std::string> not_counted;  ///< parts of the model that no count has, a sentence each
  std::optional<VisionSpec> vision;
  bool image_context = false;       ///< layers with `with_images` attend to image tokens, which are no part of the text
  bool image_per_sequence = false;  ///< an image goes with every sequence unless images are given (CLIP)
  std::int64_t mtp_layers = 0;      ///< multi-token-prediction modules
  Count mtp_params;
  std::optional<LayerSpec> trained_mtp;  ///< the layer of each module, `repeat` of them: part of a training step alone
  std::optional<std::int64_t> flat_params;  ///< `{"params": N}`: nothing else is known of the model
  std::int64_t max_positions = 0;           ///< longest sequence by the config; 0: not said
  std::optional<DType> compute_dtype;       ///< of matmul operands, if the config says
  std::optional<DType> kv_dtype;            ///< of the cache, if the own schema says
  WeightStorage storage;

  /// A vision tower and nothing else: CLIP, SigLIP, ViT.
  [[nodiscard]] bool is_vision_only() const noexcept { return vision.has_value() && layers.empty(); }
  [[nodiscard]] bool is_encoder_decoder() const noexcept { return !encoder.empty(); }
  /// A diffusion transformer that reads text without an encoder.
  [[nodiscard]] bool reads_context() const noexcept {
    if (is_encoder_decoder() || image_context) return false;
    for (const LayerSpec& layer : layers)
      if (layer.joint != Joint::kNone || layer.cross) return true;
    return false;
  }
  [[nodiscard]] std::int64_t encoder_d() const noexcept { return encoder_width != 0 ? encoder_width : d_model; }
  [[nodiscard]] std::int64_t io_width() const noexcept { return embed_width != 0 ? embed_width : d_model; }
};

/// Matrix elements that one token is multiplied with in one layer, by part. FLOP = 2 x tokens x elements.
struct LayerWeights {
  Count qkv, o_proj, other, router, mlp_dense, mlp_shared;
  Count conv;    ///< the part of `other` that is a convolution
  Count expert;  ///< of one routed expert
  Count cross_query, cross_output, cross_kv;
};

[[nodiscard]] LayerWeights layer_weights(const LayerSpec& layer, std::int64_t d_model) noexcept;

/// FLOP per token of the state update and readout of a mixer; no stored matrix is involved.
/// Mamba-2: outer product in, vector out, 4*di*N. Gated delta net: Megatron-LM's four products, 8*Hv*dk*dv.
/// Mamba-1's selective scan is elementwise and so outside the matmul rule.
[[nodiscard]] Count state_flop_per_token(const MixerSpec& mixer) noexcept;

/// All parameters by group. One pass over the distinct layers.
[[nodiscard]] ParamGroups count_params(const Architecture& model) noexcept;

/// Matrix elements that a token of a training step is multiplied with in the prediction modules: their layers, the
/// projection of the two concatenated states, and the output matrix once more for each (DeepSeek-V3, arXiv:2412.19437).
[[nodiscard]] Count mtp_weights_per_token(const Architecture& model) noexcept;

/// N for which the linear forward FLOP of one decoder token, output matrix included, are exactly 2N.
/// Encoder-decoder models: encoder and decoder weights together, as published counts do.
[[nodiscard]] Count matmul_weights_per_token(const Architecture& model) noexcept;

}  // namespace mfu
