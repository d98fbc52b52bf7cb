// Every number that the step detector decides by, each with what it separates.
#pragma once

#include <cstdint>

namespace mfu::thresholds {

// ---- likeness
inline constexpr double kSame = 0.98;       ///< of launches, or of a length: two steps of which no record was lost
inline constexpr double kAlike = 0.875;     ///< two steps, two updates, most of the units; two kinds of step share less
inline constexpr double kMost = 0.6;        ///< of launches or iterations: the others are another thread's, or new
inline constexpr double kLonger = 1.5;      ///< times the usual: other work ran as well, or a prompt beside a decode
inline constexpr double kFed = 1.0 / 3;     ///< of iterations that take a batch in: fewer, and the others decode
inline constexpr std::uint32_t kPart = 16;  ///< one in so many: the smallest phase, a mean's newest value, a last norm
inline constexpr std::uint32_t kStray = 32;  ///< one in so many: launches that fit no phase

// ---- launches
inline constexpr std::uint32_t kNear = 4;  ///< between copies of one batch; forward passes of one length differ by it
inline constexpr std::uint32_t kFew = 16;  ///< of a line of the log; there is no room for a forward pass in so many
inline constexpr std::uint32_t kLeastUpdate = 48;  ///< without a product: no forward pass has so many in a row
inline constexpr std::uint32_t kOfRule = 4;       ///< operations over lists of tensors: an optimizer's rule has as many
inline constexpr std::uint32_t kMostHeads = 256;  ///< rows of queries over rows of tokens

// ---- units that agree
inline constexpr std::uint32_t kNamed = 2;       ///< whose end has a name
inline constexpr std::uint32_t kUnnamed = 3;     ///< whose end has none; marks that a name gives by accident are fewer
inline constexpr std::uint32_t kUnlike = 6;      ///< of other lengths, in which the ends alone agree
inline constexpr std::uint32_t kMostOfTurn = 4;  ///< networks that take turns
inline constexpr std::uint32_t kTurns = 64;      ///< of the host, fed each time: an evaluation has fewer
inline constexpr std::uint32_t kGenerated = 32;  ///< passes in a row that no batch came in for: an evaluation has fewer

/// The smaller one is at least this share of the other.
template <typename Number>
constexpr bool within(Number a, Number b, double share) noexcept {
  return static_cast<double>(a < b ? a : b) >= share * static_cast<double>(a < b ? b : a);
}

}  // namespace mfu::thresholds
