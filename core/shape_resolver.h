// Where a shape's missing values come from.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "core/config.h"
#include "core/shape.h"

namespace mfu {

/// [mfu-drain] Completes the shape of an instance: its own range, then its rule's constants, then the config's
/// workload, then, for decode without a context, the prompt of the last prefill on the same device plus the decode
/// steps since. Call in the order in which instances close.
class ShapeResolver {
 public:
  explicit ShapeResolver(const WorkloadConfig& workload) : workload_(workload) {}

  [[nodiscard]] Shape resolve(Phase phase, const Shape& own, const Shape& constants, std::uint32_t device);

  /// Tokens in the KV cache of each sequence on `device` as far as the instances seen so far tell.
  [[nodiscard]] std::optional<std::int64_t> cached(std::uint32_t device) const;
  /// Sets it back: an instance that covers others is resolved after them, but began before.
  void set_cached(std::uint32_t device, std::optional<std::int64_t> tokens);

 private:
  WorkloadConfig workload_;
  std::unordered_map<std::uint32_t, std::int64_t> cached_;
};

}  // namespace mfu
