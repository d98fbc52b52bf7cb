// Training steps whose backward pass is known by name: each ends with its update. No period is needed, so that lengths
// may vary, and evaluation, sampling, logging and checkpoints between the steps do no harm.
//
// A step ends after the last launch of an optimizer before the next backward pass. The next one begins at the copies of
// its batch to the device, or with the first launch after the update; but if other work ran first, which shows in a
// forward pass that seems too long, where a forward pass of the usual length began.
//
// Where no name tells the optimizer, but each batch is copied to the device, every pass counts as a step at first. The
// update shows in what lies between a backward pass and the next batch: where it lies after some passes only, these end
// the steps. Where no batch is copied either (a loader's thread does it), the forward pass is what all passes run
// before they go backward: as soon as something else once ran before it, it is known where it begins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/detect/launch_history.h"

namespace mfu {

/// [one thread] Fixed memory. Hot: add() returns at once for launches without a mark.
class TrainingSteps {
 public:
  using Position = LaunchPosition;

  struct Step {
    Position begin = 0;  ///< first launch
    Position end = 0;    ///< first launch after it, as far as is known: after the update and what usually follows
    Position next = 0;   ///< where the next step begins; other work lies between if it is not `end`
    std::uint32_t updates = 0, backwards = 0, passes = 0;  ///< launches of optimizers, of backward passes; passes
    Position first_backward = 0;
    Position update_end = 0;       ///< after its last launch of an optimizer
    std::uint32_t copies = 0;      ///< to the device, where it begins
    std::uint32_t gap = 0;         ///< from there to where the next one begins
    std::uint32_t loaded = 0;      ///< of them, a loader's copies
    bool followed = false;         ///< by the next one, without other work between
    bool updates_unnamed = false;  ///< other work follows, but after what follows the others: an update without a name
    bool batch_follows = false;    ///< copies to the device come before the next one
    bool begin_follows = false;    ///< or it is known where the next one's forward pass begins
    bool may_be_update = false;    ///< what runs before the next one: nothing in it is of a model
    bool talks = false;            ///< something was copied to the host in the gap
    bool certain = false;          ///< where it begins is known
    bool products_follow =
        false;  ///< matrix products lie in the gap: of an update, of other work, or of a forward pass
  };

  explicit TrainingSteps(const LaunchHistory& history) noexcept : history_(history) {}

  /// The launch at `p`, which the history holds already. \return true: a step is complete, see last()
  bool add(const Launch& launch, Position p) {
    if (launch.traits.flags == 0) return false;
    return mark(launch, p);
  }

  /// Nothing more of training comes for now: the step whose update ran last is complete. \return whether there is one
  bool end_last();

  [[nodiscard]] const Step& last() const noexcept { return steps_[count_ % kKept]; }
  /// The steps before the last one, 1: the one before it. At most known() - 1 are remembered.
  [[nodiscard]] const Step& back(std::size_t n) const noexcept { return steps_[(count_ - n) % kKept]; }
  /// Another end is known now of some of the last steps: the oldest of them is the one so many before the last; 0:
  /// none.
  [[nodiscard]] std::size_t revised() const noexcept { return revised_; }
  [[nodiscard]] std::size_t known() const noexcept { return count_ < kKept ? static_cast<std::size_t>(count_) : kKept; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// Steps of one make-up follow each other: they may be reported.
  [[nodiscard]] bool found() const noexcept { return why_not_found() == nullptr; }
  /// Why they may not be; null: they may.
  [[nodiscard]] const char* why_not_found() const noexcept;
  /// What was found are perhaps passes only: between some of them runs what may be an update, or evaluation.
  [[nodiscard]] bool doubtful() const noexcept;
  /// False for a pass that is followed by another one of the same step.
  [[nodiscard]] bool ends_step(const Step& pass) const noexcept;
  /// Steps that make up one turn of an alternation, as of two networks; 1: there is none.
  [[nodiscard]] std::uint32_t steps_per_turn() const noexcept { return turn_; }
  /// How equal the steps are, one against the one before (of two that take turns, the one two before): moving averages.
  [[nodiscard]] double exact() const noexcept { return exact_; }              ///< share of equal names
  [[nodiscard]] double same_length() const noexcept { return same_length_; }  ///< share of steps of equal length
  /// The same of the launches that every step holds whatever its shapes: kernels that a library chooses by shape are
  /// left out, and copies that a loader's thread makes at any place.
  [[nodiscard]] double exact_whatever_shapes() const noexcept { return fixed_exact_; }
  [[nodiscard]] double same_length_whatever_shapes() const noexcept { return fixed_same_length_; }
  [[nodiscard]] std::uint32_t passes() const noexcept { return passes_of_step_; }  ///< of the last step
  /// The thread that trains copies batches to the device, lately.
  [[nodiscard]] bool takes_batches() const noexcept { return copies_usual_; }
  [[nodiscard]] bool named() const noexcept { return last().updates != 0; }  ///< the optimizer is known by name
  /// No batch is copied where the last step begins, and no matrix product comes for long: what is named may be but the
  /// beginning of an update, as clipping is, and the rest of it counts as forward pass.
  [[nodiscard]] bool may_begin_with_update() const noexcept;
  /// Of one step: how many are usual, or the mean where that varies.
  [[nodiscard]] std::uint32_t usual_launches() const noexcept;
  /// Of the longest step or pass that is remembered, whether steps are found or not; 0: none is known.
  [[nodiscard]] Position longest_launches() const noexcept;
  [[nodiscard]] std::size_t held_bytes() const noexcept { return counts_.held_bytes(); }

  static constexpr std::size_t kKept = 32;

 private:
  struct Run {  ///< of copies to the device
    Position begin = 0;
    std::uint32_t copies = 0;
  };

  [[gnu::noinline]] bool mark(const Launch& launch, Position p);
  void start_step(Position backward);
  void begin_step(Position begin, Position backward, bool copies);
  [[nodiscard]] Position begin_before(Position backward, bool& contiguous);
  [[nodiscard]] bool may_begin_with_update(const Step& step) const noexcept;
  [[nodiscard]] std::uint32_t alike_at(Position p, std::uint32_t compared, Position* alike = nullptr) const noexcept;
  Position like_reference(Position around, std::uint32_t reach);
  [[nodiscard]] bool forwards_are_equal() const noexcept;
  [[nodiscard]] bool little_to_host() const noexcept;
  [[nodiscard]] bool by_likeness() const noexcept;
  bool rest_of_update(Position begin) noexcept;
  void add_rest_of_updates();
  [[nodiscard]] bool copies_ahead(Position backward);
  [[nodiscard]] Position by_landmarks(Position first, Position backward, bool& contiguous);
  [[nodiscard]] bool is_product(Position p) const noexcept;
  [[nodiscard]] std::uint32_t loaded(Position begin, Position end) const noexcept;
  [[nodiscard]] bool holds_product(Position begin, Position end) const noexcept;
  Position begin_of_forward(Position backward, bool& contiguous);
  [[nodiscard]] bool holds_forward(Position begin, Position end);
  [[nodiscard]] bool holds_graph(Position begin, Position end) const noexcept;
  [[nodiscard]] std::pair<Position, Position> alike_before(Position backward, Position low) const noexcept;
  void shorten_forwards(Position length) noexcept;
  [[nodiscard]] bool has_gap(std::uint64_t gap) const noexcept;
  bool long_absence(Position p, bool marked) noexcept;
  void note_copy(Position p);
  void forget_passes() noexcept;
  void learn(Position begin, Position backward);
  void find_turns();
  [[nodiscard]] std::size_t one_of_its_kind() const noexcept;
  void compare();
  [[nodiscard]] bool are_of_any_length();
  struct NamesHeld {
    std::uint32_t names = 0, held = 0;
  };
  [[nodiscard]] NamesHeld names_held(Position a, Position a_end, Position b, Position b_end);
  [[nodiscard]] double share_of_names(Position a, Position a_end, Position b, Position b_end);
  struct Likeness {    ///< of two steps
    double all = 1;    ///< share of equal launches
    double fixed = 1;  ///< the same without what depends on shapes, or on a loader
    bool same_length = true, same_fixed_length = true;
  };
  [[nodiscard]] Likeness likeness(const Step& a, const Step& b);
  [[nodiscard]] std::uint32_t usual_gap_before_other_work() const noexcept;

  const LaunchHistory& history_;
  std::array<Step, kKept> steps_{};  ///< by number
  std::uint64_t count_ = 0;
  Step now_;
  bool open_ = false;                 ///< a backward pass was seen since the last update
  bool ended_ = false;                ///< the last step is among steps_ already
  bool updated_ = false;              ///< an optimizer ran since the last backward pass
  bool updates_named_ = false;        ///< one ever did: passes without one are no steps
  std::uint32_t foreign_ = 0;         ///< samples and copies to the host since the last backward pass or update
  std::uint32_t foreign_before_ = 0;  ///< the same before the last step began
  Position last_backward_ = 0;
  std::uint32_t caller_ = 0;  ///< thread that computes losses and runs optimizers; 0: not known
  bool loss_since_backward_ = false, copies_since_backward_ = false;
  bool loss_seen_ = false, copies_seen_ = false;
  std::uint32_t losses_ = 0;         ///< since the last backward pass
  std::uint32_t usual_losses_ = 0;   ///< in the gap before a pass that the one before led to
  bool losses_named_ = false;        ///< one came before the first backward pass
  double usual_absence_ = 0;         ///< most launches between two backward ones of a pass, lately
  std::uint32_t marked_passes_ = 0;  ///< that a loss or a batch came before
  std::uint32_t bare_passes_ = 0;    ///< that nothing came before but a long time without backward launches
  struct {
    Position begin = 0, backward = 0;
  } like_;                      ///< the forward pass that others are compared with
  bool forward_known_ = false;  ///< something other than the pass before once ran before a forward pass
  Position update_end_ = 0;
  std::array<Run, 64> runs_{};  ///< copies since the update, the latest ones
  std::uint32_t run_count_ = 0;
  Position last_copy_ = 0;
  std::array<std::uint32_t, 5> forwards_{};  ///< launches from a step's begin to its first backward, of recent steps
  std::uint32_t forward_count_ = 0;
  std::array<std::uint32_t, 5> tails_{};   ///< launches between the update and the next step, of the same steps
  bool prefetches_ = false;                ///< batches are copied in the middle of a forward pass: they mark no begin
  std::uint32_t ahead_ = 0;                ///< steps in a row where it looks so
  std::array<LaunchKey, 24> reference_{};  ///< families of the first launches of a step
  bool reference_known_ = false;
  bool certain_ = true;  ///< where the step at hand begins is known
  std::array<Position, 2>
      unusual_{};  ///< launches to the first backward pass where they were unusual, the last two steps
  bool copies_usual_ = false;
  std::uint32_t tail_ = 0;  ///< launches between the update and the next step, where nothing else runs
  std::size_t revised_ = 0;
  bool any_length_ = false;  ///< steps differ in length alone
  std::uint32_t turn_ = 1;
  std::uint32_t update_gap_ = 0;    ///< a gap of so many launches holds an update; 0: all do
  bool grouped_ = false;            ///< steps are of several passes
  std::uint32_t updates_seen_ = 0;  ///< among the remembered passes
  KeyCounts counts_;
  std::uint64_t compared_ = 0, steps_seen_ = 0;
  std::uint64_t odd_ = 0;  ///< not compared, since they were the first of their kind
  Position step_begin_ = 0;
  std::uint32_t passes_ = 0, passes_of_step_ = 1;
  std::uint32_t least_gap_ = 0, most_gap_ = 0,
                broken_ = 0;  ///< between backward passes and the next batch, of remembered passes
  double exact_ = 0, same_length_ = 0, fixed_exact_ = 0, fixed_same_length_ = 0, mean_ = 0;
  std::uint32_t last_length_ = 0, usual_length_ = 0;
};

}  // namespace mfu
