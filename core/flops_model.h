// What MFU multiplies by: a model's dimensions and conventions > FLOP, bytes and tokens of one region instance.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/shape.h"

namespace mfu {

/// The work of one region instance on this rank.
struct Work {
  bool flop_known = false;   ///< false: the shape or the model does not say; `missing` names what is absent
  double flop = 0;           ///< model FLOP by the chosen convention [FLOP]
  double hfu_flop = 0;       ///< the same plus recomputation [FLOP]
  bool bytes_known = false;
  double bytes = 0;          ///< bytes that the model must move [B]
  std::int64_t tokens = 0;   ///< tokens processed (train, prefill) or generated (decode); 0 when unknown
  const char* missing = "";  ///< the shape keys that were needed, for one line to the user; static string

  /// Adds the work of another piece. What is unknown in one is unknown in the sum.
  void add(const Work& other) noexcept {
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

/// A model with everything that turns a shape into work: dimensions, workload (gradient accumulation, recomputation,
/// trainable weights), this rank's share of the parallel layout, convention. Immutable, cheap to copy.
class FlopsModel {
 public:
  /// Work of one instance. Never throws, no I/O; at most a few microseconds (called once per instance).
  [[nodiscard]] Work work(Phase phase, const Shape& shape) const noexcept;
  /// dtype of the matmul operands by the model config (torch_dtype, quantization_config), if it says.
  [[nodiscard]] std::optional<DType> dtype() const noexcept;
  /// The counting rule's name for the output: `exact`, `palm`, ...
  [[nodiscard]] const std::string& convention() const noexcept;
  /// The `model` block of `mfu flops --json`, as JSON text.
  [[nodiscard]] const std::string& model_json() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace mfu
