// Iterations of an inference server in a stream of launches, of any batch size and length, in any order.
//
// Where tokens are sampled on the device, an iteration ends with the copy to the host that follows a sample before the
// model runs again: of the tokens, or of the answer to "are all sequences done?". An argmax whose result stays on the
// device ends nothing. Where one graph that samples is all that runs between two looks of the host, each of its
// launches is one. Where nothing is sampled on the device (llama.cpp, encoders, compiled models), an iteration is a
// turn of the host: copies in, the model, copies out, in this order and once each.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/activity_record.h"
#include "core/detect/step_findings.h"
#include "core/detect/thresholds.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {

/// A role as a bit, and the roles that only a model's forward pass has.
constexpr std::uint64_t role_bit(KernelRole role) noexcept { return std::uint64_t{1} << static_cast<unsigned>(role); }
inline constexpr std::uint64_t kRolesOfModel =
    role_bit(KernelRole::kAttention) | role_bit(KernelRole::kAttentionPrefill) |
    role_bit(KernelRole::kAttentionDecode) | role_bit(KernelRole::kGraph) | role_bit(KernelRole::kEmbedding) |
    role_bit(KernelRole::kGemm) | role_bit(KernelRole::kNorm) | role_bit(KernelRole::kCacheWrite);

/// [one thread] Pure: launches in, ends of iterations out. Fixed memory. Hot.
class ServingUnits {
 public:
  struct End {
    std::uint64_t launch = 0;  ///< first launch after the iteration
    std::uint64_t begin = 0;   ///< the copies in, or the model's first launch if they came much earlier; 0: none came
    std::uint64_t roles = 0;   ///< of its launches, a bit each
    std::uint32_t rows = 0;    ///< tokens that its passes ran over; 0: not known
    std::uint32_t launches = 0;
    bool clean = true;  ///< one pass: copies came in once at most, otherwise other work lies in it
  };
  static constexpr std::size_t kKept = 256;

  /// `begin`: the index of the first launch that will be added.
  explicit ServingUnits(std::uint64_t begin = 0) noexcept : begin_(begin) {}

  /// The launch with index `n`. True: an iteration ended before it; see back(0).
  bool add(const KernelTraits& traits, const Grid& grid, std::uint32_t name, std::uint64_t n) noexcept {
    const std::uint64_t role = role_bit(traits.role);
    bool ended = false;
    if (traits.role == KernelRole::kGraph) ended = graph_runs(traits, name, n);
    if ((role & kRolesOfModel) != 0 && !turn_.runs) ended = model_runs(n) || ended;
    turn_.roles |= role;
    if ((traits.flags & (kFlagSampling | kFlagToHost | kFlagToDevice)) != 0) ended = mark(traits, n) || ended;
    if (traits.row_axis != RowAxis::kNone) note_rows(traits, grid);
    return ended;
  }
  /// Another thread copied something to the device: perhaps a batch, whose place says nothing.
  void note_load() noexcept { turn_.loaded = true; }
  /// No more launches will come. True: the last launches were an iteration, too.
  bool finish() noexcept;
  /// The iteration so many before the last one: kKept are remembered.
  [[nodiscard]] const End& back(std::size_t i) const noexcept { return ends_[(ended_ - 1 - i) % kKept]; }
  /// kIteration: no name and no rows say what it is.
  [[nodiscard]] StepKind kind_of(const End& end) const noexcept;
  /// A training step is at launch `n`: the iteration at hand begins after it. A sample without new input may be an
  /// evaluation whose batches are not seen, so that names alone say what it is.
  void training_runs(std::uint64_t n) noexcept {
    names_only_ = true;
    turn_ = {};
    begin_ = n;
  }

  /// The stream is over: an apparent evaluation before training is none.
  void no_training_will_come() noexcept { turns_ = thresholds::kUnlike; }

  /// Enough iterations of few kinds: they may be reported.
  [[nodiscard]] bool found() const noexcept;
  [[nodiscard]] const char* why_not() const noexcept;
  /// Tokens are sampled on the device; otherwise iterations are turns of the host.
  [[nodiscard]] bool samples() const noexcept { return samples_; }
  /// A cache of keys is written, attention decodes, or what is sampled goes on from what was sampled before.
  [[nodiscard]] bool generates() const noexcept;
  /// The same by what is copied in alone: of so many iterations in a row, no batch was.
  [[nodiscard]] std::uint64_t unfed() const noexcept { return unfed_; }
  [[nodiscard]] bool decodes() const noexcept { return decodes_by_name_; }
  /// Share of recent iterations whose make-up (roles that occur, length to a factor of two) was known, 0..1.
  [[nodiscard]] double recurring() const noexcept { return recurring_; }
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  /// Launches of one iteration: a moving average.
  [[nodiscard]] double mean_launches() const noexcept { return mean_launches_; }
  /// Of most recent iterations.
  [[nodiscard]] StepKind usual_kind() const noexcept;

 private:
  /// Launches since the last iteration ended.
  struct Turn {
    bool runs = false;         ///< the model, since the last copy or sample
    bool ran = false;          ///< the model
    bool sampled = false;      ///< since the model ran last
    bool returned = false;     ///< a result went to the host, since the model ran last
    bool copied_in = false;    ///< since the model ran last
    bool loaded = false;       ///< by another thread
    std::uint32_t inputs = 0;  ///< times that copies came in and the model ran
    std::uint64_t roles = 0, roles_before_end = 0;
    std::uint64_t end = 0;       ///< after the last copy to the host
    std::uint64_t together = 0;  ///< after the last of the first copies to the host that lie together
    std::uint64_t input = 0;     ///< where the first batch came in; 0: none did
    std::uint32_t graph = 0;     ///< name of the one that sampled; 0: none
    std::uint32_t replays = 0;   ///< of it
    std::uint64_t first_replay = 0, replay = 0;
    bool other_graphs = false;
    std::uint32_t cache_rows = 0, rope_rows = 0, norm_rows = 0;
  };

  bool model_runs(std::uint64_t n) noexcept;
  bool graph_runs(const KernelTraits& traits, std::uint32_t name, std::uint64_t n) noexcept;
  bool mark(const KernelTraits& traits, std::uint64_t n) noexcept;
  void note_rows(const KernelTraits& traits, const Grid& grid) noexcept;
  bool end_iteration() noexcept;
  void note(const End& end, bool loaded) noexcept;
  void follow_level(std::uint32_t rows) noexcept;

  Turn turn_;
  std::uint64_t begin_ = 0;
  std::uint64_t copies_ = 0, copy_ = ~std::uint64_t{1};  ///< first and last of the last copies to the device in a row
  bool samples_ = false;                                 ///< ever, to the host
  std::uint32_t pass_graph_ = 0;  ///< a graph that is known to be a whole pass: each of its launches is an iteration
  std::array<End, kKept> ends_{};
  std::array<std::uint64_t, 64> known_{};
  std::uint64_t ended_ = 0, unfed_ = 0;
  double recurring_ = 0, clean_ = 0, mean_launches_ = 0;
  double level_ = 0;               ///< rows of a decode: one for each sequence that runs
  std::uint32_t above_level_ = 0;  ///< iterations in a row
  bool decodes_by_name_ = false;   ///< some do
  bool writes_cache_ = false;      ///< some do, outside graphs
  bool names_only_ = false;        ///< say what an iteration is
  bool loss_ = false;              ///< some had one: these are evaluations
  bool products_alone_ = true;     ///< nothing else ran: a benchmark
  std::uint32_t turns_ = thresholds::kTurns;
  double fed_ = 0;  ///< share of recent iterations that a batch came in for
  bool fed_ever_ = false;
  double graphed_ = 0;  ///< share of recent iterations that are a graph of unknown rows
  std::array<std::uint32_t, 5> kinds_{};
};

}  // namespace mfu
