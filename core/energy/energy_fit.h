// Watts of each kind of work on a device, from the energy of many spans of time in which they had different shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace mfu {

/// Least squares over the last spans: joules = sum over kinds of watts x seconds. Energy counters say nothing of phases
/// that share a span; shares that change from span to span do.
class EnergyFit {
 public:
  struct Span {
    double joules = 0, error = 0;                           ///< [J]; error: by how much its edges may be off
    std::vector<std::pair<std::uint32_t, double>> seconds;  ///< by kind of work, each once
  };
  struct Watts {
    double mean = 0, error = 0;  ///< [W]; the true mean is within the error 95 times of 100
  };

  void add(Span span);
  /// nullopt: too few spans so far, or the shares do not change enough to tell this kind from the others.
  [[nodiscard]] std::optional<Watts> of(std::uint32_t kind) const;

  static constexpr std::size_t kMostSpans = 120, kMostKinds = 8;

 private:
  void solve();

  std::deque<Span> spans_;
  std::vector<std::pair<std::uint32_t, Watts>> solved_;
};

}  // namespace mfu
