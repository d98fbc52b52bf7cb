// Every number that the step detector decides by, each with what it separates.
#pragma once

#include <cstdint>

namespace mfu::thresholds {

// ---- training
inline constexpr std::uint32_t kBurst = 24;    ///< launches between which there is room for a forward pass
inline constexpr std::uint32_t kLogLine = 16;  ///< launches of a line of the log: steps with and without one are alike
inline constexpr std::uint32_t kLeastUpdate = 48;  ///< launches without a product: no forward pass has so many in a
                                                   ///< row, an update of parameters one by one has
inline constexpr double kAlike = 0.9;              ///< launches in common: two steps; two kinds of step share less
inline constexpr double kSame = 0.98;              ///< two steps of which no record was lost
inline constexpr std::uint32_t kUnitsNamed = 2;    ///< that agree: an optimizer ends each by name
inline constexpr std::uint32_t kUnitsUnnamed = 3;  ///< that agree, whose end has no name
inline constexpr std::uint32_t kUnitsUnlike = 6;   ///< of other lengths, in which the updates alone agree
inline constexpr std::uint32_t kMostOfTurn = 4;    ///< networks that take turns

// ---- serving
inline constexpr std::uint32_t kIterations = 6;  ///< that sample what the next one continues, or write a cache
inline constexpr std::uint32_t kTurns = 64;  ///< of the host, fed each time: an evaluation before training has fewer
inline constexpr std::uint32_t kTurnsOfAll = 8;    ///< the same once the stream is over, and no training came
inline constexpr std::uint32_t kGenerated = 32;    ///< between training steps: an evaluation takes fewer batches
inline constexpr double kRecurring = 0.6;          ///< share of iterations of a make-up that was seen before
inline constexpr double kClean = 0.93;             ///< share of iterations with copies in once at most
inline constexpr double kMoreSequences = 1.3;      ///< rows of a decode over those of the one before, at most,
inline constexpr std::uint32_t kFewSequences = 4;  ///< and so many more: requests join one by one
inline constexpr double kFed = 1.0 / 3;            ///< share of iterations that take a batch in, where others decode

}  // namespace mfu::thresholds
