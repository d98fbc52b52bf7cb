// A phase and a shape become what is counted: sequences, passes, and what the encoder does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/base/shape.h"
#include "core/model/architecture.h"

namespace mfu {

/// `count` equal sequences that each feed `fed` tokens on `past` cached ones per pass.
struct SequenceGroup {
  std::int64_t count = 1;
  std::int64_t past = 0;
  std::int64_t fed = 0;
};

/// Height and width of each image of an instance [pixel].
using Images = std::span<const std::pair<std::int64_t, std::int64_t>>;

/// What is counted: `passes` forward passes over the same sequences, whose caches grow in between.
struct CountRequest {
  Phase phase = Phase::kTrain;
  std::span<const SequenceGroup> sequences;
  std::int64_t passes = 1;
  std::int64_t encoder_len = 0;  ///< encoder tokens per sequence
  bool encoder_runs = true;      ///< encoder and cross key/value projections are part of the work
  Images images;
};

/// The request of one shape, with its sequences.
struct ShapeRequest {
  Phase phase = Phase::kTrain;
  std::array<SequenceGroup, 4> groups{};
  std::size_t used = 0;  ///< of `groups`
  std::int64_t passes = 1;
  std::int64_t encoder_len = 0;
  bool encoder_runs = true;
  const char* missing = "";  ///< the keys of the shape that are needed and absent; static string

  void add(const SequenceGroup& group) noexcept { groups[used++] = group; }
  /// Valid as long as this object stays where it is.
  [[nodiscard]] CountRequest counted(Images images) const noexcept {
    return {phase, {groups.data(), used}, passes, encoder_len, encoder_runs, images};
  }
};

/// \param phase any but kVision, whose work has no sequences, and kNone. Never throws, no allocation.
[[nodiscard]] ShapeRequest request_of(const Architecture& model, Phase phase, const Shape& shape) noexcept;

/// A sequence that packs documents as so many sequences of their mean length, since no query sees another document.
[[nodiscard]] Shape unpacked(Shape shape, std::int64_t documents) noexcept;

}  // namespace mfu
