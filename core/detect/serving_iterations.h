// Iterations of an inference server in a stream of launches. No period is needed: decode in many batch sizes and
// prefill in many lengths may alternate as they like.
//
// Where tokens are sampled on the device, an iteration ends with the copy to the host that follows a sample before the
// model runs again: of the tokens, or of the answer to "are all sequences done?". An argmax whose result stays on the
// device, as detection models and draft models take one, ends nothing. But where one graph that samples is all that
// runs between two looks of the host, each of its launches is an iteration. Where nothing is sampled on the device
// (llama.cpp samples on the host; encoders and compiled models return what they worked out), an iteration is a turn of
// the host: copies in, the model, copies out, in this order and once each.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/activity_record.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {

enum class ServingKind : std::uint8_t { kUnknown, kDecode, kPrefillOrMixed };

/// A role as a bit, and the roles that only a model's forward pass has.
constexpr std::uint64_t role_bit(KernelRole role) noexcept { return std::uint64_t{1} << static_cast<unsigned>(role); }
inline constexpr std::uint64_t kRolesOfModel =
    role_bit(KernelRole::kAttention) | role_bit(KernelRole::kAttentionPrefill) |
    role_bit(KernelRole::kAttentionDecode) | role_bit(KernelRole::kGraph) | role_bit(KernelRole::kEmbedding) |
    role_bit(KernelRole::kGemm) | role_bit(KernelRole::kNorm) | role_bit(KernelRole::kCacheWrite);

/// [one thread] Pure: launches in, ends of iterations out. Fixed memory. Hot.
class ServingIterations {
 public:
  struct End {
    std::uint64_t launch = 0;  ///< first launch after the iteration
    std::uint64_t begin = 0;   ///< the copies in, or the model's first launch if they came much earlier; 0: not known
    std::uint64_t roles = 0;   ///< of its launches, a bit each
    std::uint32_t rows = 0;    ///< tokens that its passes ran over; 0: not known
    std::uint32_t launches = 0;
    bool clean = true;  ///< one pass: copies came in once at most, otherwise other work lies in it
  };

  /// `begin`: the index of the first launch that will be added.
  explicit ServingIterations(std::uint64_t begin = 0) noexcept : begin_(begin) {}

  /// The launch with index `n`. True: an iteration ended before it; see last().
  bool add(const KernelTraits& traits, const Grid& grid, std::uint32_t name, std::uint64_t n) noexcept {
    const std::uint64_t role = role_bit(traits.role);
    bool ended = false;
    if (traits.role == KernelRole::kGraph) ended = graph_runs(traits, name, n);
    if ((role & kRolesOfModel) != 0 && !runs_) ended = model_runs(n) || ended;
    roles_ |= role;
    if ((traits.flags & (kFlagSampling | kFlagToHost | kFlagToDevice)) != 0) ended = mark(traits, n) || ended;
    if (traits.row_axis != RowAxis::kNone) note_rows(traits, grid);
    return ended;
  }
  /// No more launches will come. True: what came last was an iteration, too; see last().
  bool finish() noexcept;
  [[nodiscard]] const End& last() const noexcept { return last_; }
  [[nodiscard]] ServingKind kind_of(const End& end) const noexcept;
  /// The program trains: what samples without new input may be an evaluation whose batches are not seen.
  void in_training() noexcept { names_only_ = true; }

  /// Enough iterations of few kinds: they may be reported.
  [[nodiscard]] bool found() const noexcept;
  /// Tokens are sampled on the device; otherwise iterations are turns of the host.
  [[nodiscard]] bool samples() const noexcept { return samples_; }
  /// Share of recent iterations whose make-up (roles that occur, length to a factor of two) was known, 0..1.
  [[nodiscard]] double recurring() const noexcept { return recurring_; }
  /// Share of recent iterations of the same make-up as the one before, 0..1.
  [[nodiscard]] double uniform() const noexcept { return uniform_; }
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  /// Launches of one iteration: a moving average.
  [[nodiscard]] double mean_launches() const noexcept { return mean_launches_; }
  /// Of most recent iterations.
  [[nodiscard]] ServingKind usual_kind() const noexcept;

 private:
  bool model_runs(std::uint64_t n) noexcept;
  bool graph_runs(const KernelTraits& traits, std::uint32_t name, std::uint64_t n) noexcept;
  bool mark(const KernelTraits& traits, std::uint64_t n) noexcept;
  void note_rows(const KernelTraits& traits, const Grid& grid) noexcept;
  bool end_iteration() noexcept;
  void follow_level() noexcept;

  bool runs_ = false;      ///< the model, since the last copy or sample
  bool ran_ = false;       ///< the model, since the iteration began
  bool sampled_ = false;   ///< since the model ran last
  bool returned_ = false;  ///< what it worked out went to the host, since the model ran last
  bool samples_ = false;   ///< ever, to the host
  bool copied_in_ = false;
  std::uint32_t inputs_ = 0;  ///< times that copies came in and the model ran
  std::uint64_t roles_ = 0, roles_before_end_ = 0;
  std::uint64_t end_ = 0;       ///< after the last copy to the host
  std::uint64_t together_ = 0;  ///< after the last of the first copies to the host that lie together
  std::uint64_t begin_ = 0;
  std::uint64_t input_ = 0;  ///< where the first batch came in, in this iteration; 0: none did
  std::uint64_t copies_ = 0, copy_ = ~std::uint64_t{1};  ///< first and last of the last copies to the device in a row
  std::uint32_t graph_ = 0;       ///< name of the one that sampled since the iteration began; 0: none
  std::uint32_t replays_ = 0;     ///< of it
  std::uint64_t replay_ = 0;      ///< the last of them
  bool other_graphs_ = false;     ///< ran since the iteration began
  std::uint32_t pass_graph_ = 0;  ///< a graph that is known to be a whole pass: each of its launches is an iteration
  std::uint32_t cache_rows_ = 0, rope_rows_ = 0, norm_rows_ = 0;
  End last_;
  std::array<std::uint64_t, 64> known_{};
  std::uint64_t ended_ = 0, make_up_ = 0;
  double recurring_ = 0, uniform_ = 0, clean_ = 0, mean_launches_ = 0;
  double level_ = 0;               ///< rows of a decode: one for each sequence that runs
  std::uint32_t above_level_ = 0;  ///< iterations in a row
  bool decodes_by_name_ = false;   ///< some do
  bool writes_cache_ = false;      ///< some do, outside graphs
  bool names_only_ = false;        ///< say what an iteration is
  bool fed_ever_ = false;          ///< a batch came in, once
  double fed_ = 0;                 ///< share of recent iterations that one came in for
  double graphed_ = 0;             ///< share of recent iterations that are a graph of unknown rows
  std::array<std::uint32_t, 3> kinds_{};
};

}  // namespace mfu
