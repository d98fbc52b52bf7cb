// Facts that an interpreter reports of the program that it runs.
#pragma once

#include <cstdint>

#include "core/base/ids.h"
#include "core/base/shape.h"
#include "core/base/units.h"

namespace mfu {

enum class FactKind : std::uint8_t {
  kPassBegin,      ///< the outermost call of a model on its thread
  kPassEnd,        ///< it returned, or an exception left it
  kBackwardBegin,  ///< gradients are computed
  kBackwardEnd,
  kUpdateBegin,  ///< an optimizer makes a step
  kUpdateEnd,
  kOptimizerMade,
  kOptimizerGone,
  kFetch,       ///< a batch is asked of a data loader
  kPassWork,    ///< FLOP of each pass of `model`: forward in the place of the batch, backward in that of seq_len
  kNotReached,  ///< the backward pass that ends next computed no gradients of this module
  kMoreWork,    ///< gradients beside passes; `model` 0: of unknown FLOP; kBackward: in the backward pass that has begun
  kLayer,       ///< a layer of the pass begins, `model` 1 for the first; 0: the rest of the pass
  kDropped,     ///< the result of a pass of this module, model and shape is gone: nothing computes its gradients
};

[[nodiscard]] inline bool begins(FactKind kind) noexcept {
  return kind == FactKind::kPassBegin || kind == FactKind::kBackwardBegin || kind == FactKind::kUpdateBegin;
}
[[nodiscard]] inline bool ends(FactKind kind) noexcept {
  return kind == FactKind::kPassEnd || kind == FactKind::kBackwardEnd || kind == FactKind::kUpdateEnd;
}

/// One fact. Facts of a thread nest, as its calls do. A plain value: it goes through a queue.
struct ProgramFact {
  static constexpr std::uint8_t kGradients = 1,  ///< of a pass: gradients are recorded
      kTraining = 2,                             ///< the model is in training mode
      kTrainable = 4,                            ///< it has parameters that train
      kCache = 8,                                ///< it fills a key-value cache; of its end: it read one
      kReplayed = 16;  ///< no region: a part of a graph, at an unknown time in it, or named by a range
  static constexpr std::uint8_t kNoAttention = 1;  ///< of kPassWork: there is no fused attention in it
  static constexpr std::uint8_t kBackward = 1;     ///< of a layer, and of kMoreWork: of a backward pass

  FactKind kind = FactKind::kFetch;
  std::uint8_t mode = 0;                 ///< of a pass: the bits above
  std::uint32_t thread = 0;              ///< any number that other threads do not have
  std::uint64_t subject = 0;             ///< identity of the module or the optimizer
  std::uint32_t model = 0;               ///< number of the model that was handed over; 0: none, or that of its begin
  CorrelationId launch{};                ///< newest launch of the process at that time
  InstanceId range = InstanceId::kNone;  ///< the innermost region that the thread's ranges have open
  TimeNs at = 0;
  ShapeWords shape;  ///< of a pass

  [[nodiscard]] bool is_like(const ProgramFact& pass) const noexcept {
    return subject == pass.subject && model == pass.model && shape.value == pass.shape.value;
  }
};

}  // namespace mfu
