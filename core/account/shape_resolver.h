// Where a shape's missing values come from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "core/attribution/instance_table.h"
#include "core/base/shape.h"
#include "core/model/workload.h"

namespace mfu {

/// The parts of an instance's shape that are known before the config is asked.
struct ShapeHints {
  Shape own;        ///< its range said so
  Shape constants;  ///< its rule says so
  Shape detected;   ///< its kernels say so
};

struct ResolvedShape {
  Shape shape;
  std::array<ShapeSource, ShapeWords::kCount> source{};  ///< of each value, as ShapeWords numbers them

  [[nodiscard]] bool by_kernels(std::size_t key) const noexcept { return source[key] == ShapeSource::kDetected; }
};

/// [mfu-drain] Completes the shape of an instance: its own range, then its rule's constants, then the config's
/// workload, then its kernels, then, for decode without a context, the prompt of the last prefill on the same device
/// plus the decode steps since. Call in the order in which instances close.
class ShapeResolver {
 public:
  explicit ShapeResolver(const Workload& workload) : workload_(workload) {}

  [[nodiscard]] ResolvedShape resolve(Phase phase, const ShapeHints& hints, std::uint32_t device);

  /// Tokens in the KV cache of each sequence on `device` as far as the instances seen so far show.
  [[nodiscard]] std::optional<std::int64_t> cached(std::uint32_t device) const;
  /// Sets it back: an instance that covers others is resolved after them, but began before.
  void set_cached(std::uint32_t device, std::optional<std::int64_t> tokens);

 private:
  Workload workload_;
  std::unordered_map<std::uint32_t, std::int64_t> cached_;
};

}  // namespace mfu
