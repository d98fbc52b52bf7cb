// The matrix products and attention kernels of one instance, and the shape that they give away.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/account/attention_launch.h"
#include "core/base/activity_record.h"
#include "core/base/product.h"
#include "core/base/shape.h"
#include "core/model/component_names.h"

namespace mfu {

class AttentionLengths;

/// FLOP of the attention kernels of some instances, as far as their shapes say.
struct AttentionWork {
  double forward_flop = 0, backward_flop = 0;        ///< [FLOP] of the kernels below
  double forward_kernels = 0, backward_kernels = 0;  ///< split with the time of an instance across windows
  double products_again = 0;                         ///< see InstanceProducts::again

  void add(const AttentionWork& other, double share = 1) noexcept {
    forward_flop += share * other.forward_flop;
    backward_flop += share * other.backward_flop;
    forward_kernels += share * other.forward_kernels;
    backward_kernels += share * other.backward_kernels;
    products_again += share * other.products_again;
  }
};

/// The tokens and sequences of an instance, read from its products and attention kernels. Of this rank.
struct SeenShape {
  std::optional<std::int64_t> rows;       ///< of one pass: tokens of this rank
  std::optional<std::int64_t> sequences;  ///< of one pass
  /// Tokens of each sequence; only where all of them have as many.
  std::optional<std::int64_t> queries;
  std::optional<std::int64_t> keys;    ///< that each query sees, itself included; of a single pass
  std::optional<std::int64_t> logits;  ///< positions whose logits were computed, in one product
  std::int64_t passes = 0;             ///< 0: not known
};

/// [mfu-drain] A few hundred bytes.
class InstanceProducts {
 public:
  /// A product that was called. `match`: its matrix of the model.
  void add(const Product& product, ComponentNames::Match match);
  /// The same where there is no model to find it in.
  void add(const Product& product);
  void add(const AttentionLaunch& launch) {
    // Those of a pass take turns, and what one says need not be read twice.
    const std::size_t known = launch.number != 0 ? launches_.size() : 0;
    for (std::size_t looks = 0, i = last_launch_; looks < known; ++looks, ++i) {
      if (i >= known) i = 0;
      if (launches_[i].launch.number == launch.number) return count(i);
    }
    add_new(launch);
  }
  /// As new, but for the room that it has.
  void clear() noexcept;

  /// \param heads, head_dim of one attention layer on this rank.
  /// \param layer_share the share of the model's layers that this rank has: 1 / pipeline stages.
  ///
  /// Rows: n of the forward products of a weight matrix that every token is multiplied with; in training n of the
  /// gradients of its input, which recomputation does not repeat. Of all matrices the one that says most, since those
  /// that the model has twice by size may run once. Sequences: of fused kernels by their grids, else batch / heads of
  /// the products of queries and keys. They have one length where rows / sequences is whole and fits the grids.
  [[nodiscard]] SeenShape shape(const ComponentNames& names, Phase phase, std::int64_t heads, std::int64_t head_dim,
                                double layer_share) const;
  /// Tokens of a pass where there is no model: n of most of the FLOP of forward products and gradients of inputs.
  [[nodiscard]] std::optional<std::int64_t> rows() const noexcept;
  /// FLOP of those attention kernels that `lengths` knows the size of.
  [[nodiscard]] AttentionWork attention(const AttentionLengths& lengths, std::optional<std::int64_t> rows) const;
  /// Forward products of stored matrices ran, all of their passes are known, and nothing of a backward pass ran.
  [[nodiscard]] bool only_forward() const noexcept;
  /// Forward products that ran after the backward pass had begun and before the gradients of their input: activations
  /// that were computed again. A teacher's pass runs before. Only where the logits' product shows where a pass ends.
  [[nodiscard]] std::uint64_t again() const noexcept { return again_; }
  [[nodiscard]] std::uint64_t attention_forward() const noexcept { return forward_; }
  [[nodiscard]] std::uint64_t attention_backward() const noexcept { return backward_; }

 private:
  /// Calls of one matrix in one pass.
  struct Calls {
    ComponentNames::Match match;
    std::uint64_t count = 0;
    std::uint64_t rows = 0;  ///< sum
    std::uint64_t first_rows = 0;
    bool same_rows = true;
    std::uint64_t in_backward = 0;  ///< forward, since the backward pass began, and no gradient since
  };
  /// A number that is of interest only where it is always the same.
  struct Same {
    std::int64_t value = 0;
    bool any = false, differs = false;

    void add(std::int64_t v) noexcept {
      differs = differs || (any && v != value);
      value = v;
      any = true;
    }
    [[nodiscard]] std::optional<std::int64_t> get() const noexcept {
      return any && !differs ? std::optional(value) : std::nullopt;
    }
  };
  struct Launches {
    AttentionLaunch launch;
    std::uint64_t count = 0;
  };
  struct Rows {
    std::uint64_t rows = 0;
    double flop = 0;
  };
  /// Distinct ones. More launches are passes of many lengths; those beyond have no known FLOP.
  static constexpr std::size_t kMostLaunches = 16, kMostRows = 16;

  void add_new(const AttentionLaunch& launch);
  void note_order(ComponentNames::Match match, Calls& calls) noexcept;
  void count(std::size_t launch) noexcept {
    last_launch_ = launch;
    Launches& of = launches_[launch];
    ++of.count;
    forward_ += static_cast<std::uint64_t>(of.launch.kernel.part == AttentionKernel::Part::kForward);
    backward_ += static_cast<std::uint64_t>(of.launch.kernel.part == AttentionKernel::Part::kBackward);
  }
  [[nodiscard]] const Calls* calls_that_say_most(const ComponentNames& names, ProductPass pass) const;

  std::vector<Calls> calls_;  ///< at most the model's distinct matrices times three
  std::size_t last_ = 0;
  bool passes_end_ = false;     ///< a product of the logits was seen
  bool backward_runs_ = false;  ///< since the last one
  std::uint64_t waiting_ = 0;   ///< sum of Calls::in_backward
  std::uint64_t again_ = 0;
  std::uint64_t forward_ = 0, backward_ = 0;  ///< attention kernels that do the work
  Same sequences_;
  bool unknown_sequences_ = false;  ///< some attention kernel's grid does not say
  bool by_helpers_ = false;         ///< of some attention kernels only the helpers' grids say it
  bool helpers_said_ = false;
  std::vector<Launches> launches_;  ///< of all parts
  std::size_t last_launch_ = 0;     ///< the one that was met last
  bool more_launches_ = false;
  std::vector<Rows> rows_;  ///< without a model
  // Products of queries and keys: A transposed, k = width of a head.
  Same score_batch_, score_queries_, score_keys_, score_width_;
};

}  // namespace mfu
