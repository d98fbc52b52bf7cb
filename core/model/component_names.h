// Names the matrix products of a run: a product's sizes against the matrices of a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/product.h"
#include "core/model/architecture.h"

namespace mfu {

/// Which of the three products of a weight matrix it is. Y = X W^T: forward Y, the gradient of X (`dgrad`), the
/// gradient of W (`wgrad`).
enum class ProductPass : std::uint8_t { kUnknown, kForward, kDgrad, kWgrad };

/// How many products ran on the device since an attention kernel, this one not counted. It separates the output
/// projection from those of queries, keys and values where their sizes are equal.
enum class AfterAttention : std::uint8_t {
  kNext,   ///< none
  kSoon,   ///< one to five: gradients of queries, keys and values follow the backward kernel of attention
  kLater,  ///< more, or no attention kernel yet
};

/// Forward: m = out, n = rows, k = in, A transposed. dgrad: m = in, n = rows, k = out, none transposed. wgrad: m = in,
/// n = out, k = rows, B transposed. So PyTorch and Transformer Engine call cuBLAS for a matrix that is stored out x in,
/// measured on torch 2.15 and the same in aten/src/ATen/native/cuda/Blas.cpp. `Conv1D` of transformers stores in x out,
/// which swaps the transposes of the first two and m with n in the third. 8-bit floats on compute capability 8.9 and 9
/// have A transposed in all three, so that only sizes decide there.
enum class WeightLayout : std::uint8_t { kOutByIn, kInByOut };

/// The matrices of one rank of a model, by size.
class ComponentNames {
 public:
  /// The meaning of the rows of a matrix's products.
  enum class Rows : std::uint8_t {
    kTokens,
    kExperts,  ///< tokens that were routed to one expert, or to each of a batch of them
    kLogits,   ///< positions whose logits are computed
    kOther,    ///< encoder tokens, or nothing known
  };
  /// All matrices of one size.
  struct Weights {
    std::int64_t out = 0, in = 0;
    std::vector<std::string> names;  ///< `q`, `o`, ...: in the order of a layer
    double calls = 0;                ///< products of this size in one forward pass of the whole model
    Rows rows = Rows::kTokens;
  };
  static constexpr std::uint16_t kNoWeights = 0xFFFF;
  static constexpr std::uint16_t kAttention = 0xFFFE;  ///< a batch of products: scores and values, one for each head
  struct Match {
    std::uint16_t weights = kNoWeights;  ///< index into all(), or one of the two above
    ProductPass pass = ProductPass::kUnknown;
    bool logits = false;  ///< the model's output matrix
    [[nodiscard]] bool known() const noexcept { return weights != kNoWeights; }
    [[nodiscard]] bool is_weight() const noexcept { return weights < kAttention; }
  };

  ComponentNames() = default;
  /// \param tensor_parallel ranks that share each layer: outputs of q, k, v, gate, up and the output matrix are divided
  ///   by it, inputs of o and down too (Megatron-LM, arXiv:1909.08053). Fused matrices (qkv, gate+up) are known beside
  ///   the separate ones.
  [[nodiscard]] static ComponentNames of(const Architecture& model, std::int64_t tensor_parallel = 1);

  [[nodiscard]] Match match(const Product& product, WeightLayout layout = WeightLayout::kOutByIn) const noexcept;
  /// True for a product that only a model with matrices stored in x out has: the forward product of its fused qkv.
  [[nodiscard]] bool shows_in_by_out(const Product& product) const noexcept;

  /// `q`, `gate+up`, `k+v`, `o`, `logits`, `attention`, ...; where sizes are equal and `after` does not tell, all of
  /// them: `q+o`. Empty for kNoWeights.
  [[nodiscard]] std::string name(Match match, AfterAttention after) const;
  [[nodiscard]] const std::vector<Weights>& all() const noexcept { return all_; }
  /// Whether there is a matrix of this size; that of the logits may be padded.
  [[nodiscard]] bool has(std::uint64_t in, std::uint64_t out) const noexcept { return find(out, in) != kNoWeights; }

 private:
  void add(std::string_view name, std::int64_t out, std::int64_t in, double calls, Rows rows);
  void add_layer(const Architecture& model, const LayerSpec& layer, std::int64_t tensor_parallel, bool encoder);
  [[nodiscard]] std::uint16_t find(std::uint64_t out, std::uint64_t in) const noexcept;

  std::vector<Weights> all_;
  std::int64_t logits_out_ = 0, logits_in_ = 0;
};

/// Rows that went through the matrix: n, or k of a weight gradient; for each product of a batch.
[[nodiscard]] std::uint64_t rows_of(const Product& product, ProductPass pass) noexcept;

/// Pass by the transposes alone, for a matrix that is stored out x in.
[[nodiscard]] ProductPass pass_by_transposes(const Product& product) noexcept;

/// In and out of the matrix that the transposes imply.
[[nodiscard]] std::pair<std::uint64_t, std::uint64_t> size_by_transposes(const Product& product) noexcept;

/// A name without a model: in x out of the matrix that the transposes imply, `4096x14336`; `batched` for a batch.
[[nodiscard]] std::string name_by_size(const Product& product);

/// [B] of the three matrices, each once, batch included.
[[nodiscard]] double bytes_once(const Product& product) noexcept;

/// `fwd`, `dgrad`, `wgrad`; empty where it is not known.
[[nodiscard]] std::string_view name(ProductPass pass) noexcept;

}  // namespace mfu
