// From a model's dimensions and conventions to FLOP, bytes and tokens of one region instance.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/count.h"
#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/base/shape.h"
#include "core/model/architecture.h"
#include "core/model/attention_pairs.h"
#include "core/model/request.h"

namespace mfu {

/// The work of one region instance on this rank.
struct Work {
  bool flop_known = false;  ///< false: the shape or the model does not say; `missing` names what is absent
  double flop = 0;          ///< model FLOP by the chosen convention [FLOP]
  double hfu_flop = 0;      ///< the same plus recomputation [FLOP]
  bool bytes_known = false;
  double bytes = 0;          ///< bytes that the model must move [B]
  std::int64_t tokens = 0;   ///< tokens processed (train, prefill) or generated (decode); 0 when unknown
  const char* missing = "";  ///< the shape keys that were needed, for one line to the user; static string
  double flop_least = 0;     ///< where `flop` is not known: bound from below [FLOP]; 0: none
  double bytes_least = 0;    ///< likewise of `bytes` [B]

  [[nodiscard]] double at_least_flop() const noexcept { return flop_known ? flop : flop_least; }
  [[nodiscard]] double at_least_bytes() const noexcept { return bytes_known ? bytes : bytes_least; }
  /// There is more than was counted.
  void leave_out() noexcept { flop_least = at_least_flop(), flop_known = false; }
  /// Adds the work of another piece. A figure unknown in one is unknown in the sum.
  void add(const Work& other) noexcept {
    flop_least = at_least_flop() + other.at_least_flop();
    bytes_least = at_least_bytes() + other.at_least_bytes();
    flop_known = flop_known && other.flop_known;
    bytes_known = bytes_known && other.bytes_known;
    flop += other.flop;
    hfu_flop += other.hfu_flop;
    bytes += other.bytes;
    tokens += other.tokens;
    if (*missing == '\0') missing = other.missing;
  }
  /// The sum of nothing.
  [[nodiscard]] static Work none() noexcept {
    Work w;
    w.flop_known = w.bytes_known = true;
    return w;
  }
};

/// Rows of the output matrix that are projected.
enum class LogitsMode : std::uint8_t {
  kByPhase,  ///< all in training and for encoders, last otherwise
  kAll,      ///< every token
  kLast,     ///< one row per sequence and pass
};

/// How decode passes after the first see the context.
enum class ContextMode : std::uint8_t {
  kAuto,   ///< grows by the tokens fed: the exact sum
  kFixed,  ///< every pass sees the first pass's context
  kMax,    ///< every pass sees the last pass's context
};

/// A named rule for the total. N: active parameters, D: tokens, S: sequence length, L: attention layers, H: heads,
/// a = dq + dv, Nmm: matmul weights per token. Training totals; forward alone is a third of each.
enum class Convention : std::uint8_t {
  kExact,           ///< the sum of the components
  kPalm,            ///< (6N + 6LHaS)D; PaLM, arXiv:2204.02311 appendix B (12LHQS where dq = dv = Q)
  kNanogpt,         ///< palm with N less the position table; nanoGPT model.py estimate_mfu
  kTorchtitan,      ///< palm with N less the input table unless tied; torchtitan models/utils.py
  kTorchtitan2026,  ///< the same with at most a window's keys, and 18 Hv dk dv for a delta net
  kMegatron,        ///< 6D(Nmm less router) + 3BS^2HaL, encoders 6BS^2HaL; Megatron-LM training/training.py
  kKaplan,          ///< 3(2Nk + LSHa)D, Nk without embeddings and output matrix; arXiv:2001.08361 table 1
  kChinchilla,      ///< 3(2D Nmm + 2DVd + 2BS^2HaL + 3BS^2HL); arXiv:2203.15556 appendix F
  k6nd,             ///< 6ND: the rule of thumb, no attention
};

/// `exact`, `palm`, `nanogpt`, `torchtitan`, `torchtitan-2026`, `megatron`, `kaplan`, `chinchilla`, `6nd`.
[[nodiscard]] std::string_view name(Convention convention) noexcept;
/// Whose formula it is, as of when: `Megatron-LM of August 2026`; empty: this project's.
[[nodiscard]] std::string_view version_of(Convention convention) noexcept;
[[nodiscard]] std::string_view name(AttentionMode mode) noexcept;  ///< `causal`, `full`, `full_windowed`
[[nodiscard]] std::optional<Convention> parse_convention(std::string_view text) noexcept;

/// The part of the forward pass that the backward pass computes again. Model FLOP never count it, HFU does.
enum class Recompute : std::uint8_t {
  kNone,
  kFlash,      ///< the scores inside a fused attention backward: half of the core
  kSelective,  ///< the attention core; Korthikanti, arXiv:2205.05198
  kFull,       ///< every layer, not the output matrix
};

/// Adapters of rank `rank` beside frozen matrices.
struct LoraConfig {
  std::int64_t rank = 0;
  bool q = false, k = false, v = false, o = false, gate = false, up = false, down = false;
};

/// Which weights are trained. A frozen weight still passes gradients through: + 1 x forward instead of 2.
struct TrainableConfig {
  bool none = false;      ///< forward only
  bool attention = true;  ///< projections
  bool mlp = true;        ///< MLPs, experts, routers
  bool lm_head = true;
  bool vision = true;   ///< frozen: the tower has no backward, nothing below it is trained
  bool encoder = true;  ///< frozen: likewise for the encoder of an encoder-decoder model
  std::optional<LoraConfig> lora;
};

/// How many ranks share one job. World = pp * max(tp * cp * dp, ep): expert parallelism reuses the other ranks.
struct ParallelConfig {
  std::int64_t tp = 1, pp = 1, cp = 1, ep = 1, dp = 1;

  [[nodiscard]] double world() const noexcept {
    return static_cast<double>(pp) *
           std::max(static_cast<double>(tp) * static_cast<double>(cp) * static_cast<double>(dp),
                    static_cast<double>(ep));
  }
};

/// One rank's part of the work, in words: `1/8 of the model (tp 4, pp 2)`; empty: all of it.
[[nodiscard]] std::string share_text(const ParallelConfig& ranks, const Architecture& model);

/// Everything besides the dimensions that decides a count.
struct FlopsOptions {
  Convention convention = Convention::kExact;
  AttentionMode attention = AttentionMode::kCausal;
  LogitsMode logits = LogitsMode::kByPhase;
  ContextMode context_mode = ContextMode::kAuto;
  std::int64_t grad_accum = 1;
  std::int64_t documents = 1;  ///< of each training sequence, where attention stays within a document
  Recompute recompute = Recompute::kNone;
  TrainableConfig trainable;
  ParallelConfig parallel;
  std::optional<WeightFormat> weight_format;  ///< override of the config's for every weight
  std::optional<DType> kv_dtype;              ///< of the cache; absent: the compute dtype if 16 bit wide, else bf16
  std::vector<std::pair<std::int64_t, std::int64_t>> images;  ///< (height, width) of each image of an instance [pixel]
  bool mla_absorbed = false;  ///< HFU counts the absorbed attention core of latent attention
};

/// FLOP by component, forward. `other`: OPT in/out projection, BERT transform, convolutions and state updates.
struct FlopParts {
  Count qkv, attn_scores, attn_av, o_proj, mlp, router, logits;
  Count cross_qkv, cross_scores, cross_av, cross_o_proj, vision, other;

  [[nodiscard]] Count sum() const noexcept;
};
struct FlopPart {
  const char* name;
  Count FlopParts::*count;
};
inline constexpr FlopPart kFlopParts[] = {
    {"qkv", &FlopParts::qkv},
    {"attn_scores", &FlopParts::attn_scores},
    {"attn_av", &FlopParts::attn_av},
    {"o_proj", &FlopParts::o_proj},
    {"mlp", &FlopParts::mlp},
    {"router", &FlopParts::router},
    {"logits", &FlopParts::logits},
    {"cross_qkv", &FlopParts::cross_qkv},
    {"cross_scores", &FlopParts::cross_scores},
    {"cross_av", &FlopParts::cross_av},
    {"cross_o_proj", &FlopParts::cross_o_proj},
    {"vision", &FlopParts::vision},
    {"other", &FlopParts::other},
};

/// The exact count of one instance of the whole model (all ranks), gradient accumulation included.
struct FlopCount {
  FlopParts parts;                          ///< forward
  Count mlp_dense, mlp_routed, mlp_shared;  ///< split of parts.mlp
  Count forward, backward, recompute;
  Count total;                         ///< by the convention: the numerator of MFU
  Count encoder_forward;               ///< of it, the encoder of an encoder-decoder model
  Count absorbed_scores, absorbed_av;  ///< latent attention with absorbed up-projections: replaces, never adds
  Count tokens;
};

/// Bytes that the model must move for one instance, whole model.
struct ByteCount {
  Count weights_read;      ///< expected distinct experts under uniform routing, rounded
  Count weights_read_min;  ///< every token picks the same experts
  Count weights_read_max;  ///< every token picks different ones
  Count experts_read;      ///< of weights_read, the routed experts
  Count embedding_rows;    ///< rows gathered from the input table; not in the sum that MBU uses
  Count kv_read, kv_write;
  Count kv_resident_end, kv_resident_end_windowed;  ///< cache size after the last pass

  /// The bytes of MBU and the roofline.
  [[nodiscard]] Count moved() const noexcept { return weights_read + kv_read + kv_write; }
};

/// A model with everything that turns a shape into work: dimensions, workload (gradient accumulation, recomputation,
/// trainable weights), this rank's share of the parallel layout, convention. Immutable, cheap to copy.
class FlopsModel {
 public:
  /// \param spec as a family reader or the own schema made it.
  [[nodiscard]] static FlopsModel make(Architecture spec, FlopsOptions options);

  /// Work of one instance. Never throws, no I/O; at most a few microseconds (called once per instance).
  [[nodiscard]] Work work(Phase phase, const Shape& shape) const noexcept;
  /// dtype of the matmul operands by the model config (torch_dtype, quantization_config), if it says.
  [[nodiscard]] std::optional<DType> dtype() const noexcept;
  /// The counting rule's name for the output: `exact`, `palm`, ...
  [[nodiscard]] const std::string& convention() const noexcept;

  [[nodiscard]] const Architecture& spec() const noexcept;
  [[nodiscard]] const FlopsOptions& options() const noexcept;

  /// Exact FLOP of the whole model. Error: a convention that is not defined for this model, or a product beyond 2^64.
  [[nodiscard]] Result<FlopCount> count_flop(const CountRequest& request) const;
  /// Exact bytes of the whole model. Error: training (no agreed minimum), an unknown weight format, beyond 2^64.
  [[nodiscard]] Result<ByteCount> count_bytes(const CountRequest& request) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace mfu
