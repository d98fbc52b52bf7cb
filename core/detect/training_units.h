// Training steps by what names show: backward passes, and the updates that end them.
//
// An update after a backward pass ends a unit of work: one of a named optimizer or, where none is named, a long stretch
// without a matrix product, as a loop over parameters is. The unit is what always comes before it: it begins where its
// batch is copied in, or right after the update before. Anything else in between (an evaluation, a checkpoint) makes
// this gap longer than it usually is, and stays outside.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/detect/launch.h"
#include "core/detect/launch_history.h"
#include "core/detect/thresholds.h"

namespace mfu {

/// One optimizer step, as far as names show it.
struct TrainingUnit {
  struct Run {  ///< copies to the device that lie together
    LaunchPosition at = 0;
    std::uint32_t copies = 0;
  };
  static constexpr std::size_t kRuns = 8;

  LaunchPosition before = 0;    ///< end of the update before
  LaunchPosition backward = 0;  ///< its first backward launch: its gap lies between the two
  LaunchPosition update = 0, end = 0;
  std::uint32_t updates = 0;  ///< launches of the update that have a name
  std::uint32_t passes = 0;
  std::uint32_t runs = 0;              ///< in the gap
  std::uint32_t to_host = 0;           ///< copies to the host in it
  std::array<Run, kRuns> last_runs{};  ///< the last one first
  LaunchPosition product = 0;          ///< the first one in the gap
  std::uint32_t kernels = 0;           ///< before it
  double alike = 0;                    ///< launches in common with the unit before, from the first backward one on
  bool by_name = false;                ///< names end it: of an optimizer, or of operations over lists of tensors
  bool named = false;                  ///< an optimizer's name, or a rule of several such operations

  [[nodiscard]] std::uint64_t gap() const noexcept { return backward - before; }
  [[nodiscard]] std::uint64_t core() const noexcept { return end - backward; }
};

/// [one thread] Memory is fixed at construction.
class TrainingUnits {
 public:
  struct Step {
    LaunchPosition begin = 0, end = 0;
  };

  explicit TrainingUnits(const LaunchHistory& history) : history_(history) {}

  /// `p`: the launch's position in the history; `others`: another thread launched kernels lately. True: a unit is
  /// complete, since the next backward pass has begun.
  bool add(const Launch& launch, LaunchPosition p, bool others) {
    const bool of_engine = engine_ != 0 && launch.thread == engine_ && launch.name >= Launch::kFirstKernel;
    if (((launch.traits.flags & kMarks) == 0) && !of_engine) return false;
    return mark(launch, p, of_engine, others);
  }
  /// No more launches will come: the last update ends a unit. True: there is one.
  bool finish();

  /// Backward passes or an optimizer were seen: the program trains.
  [[nodiscard]] bool trains() const noexcept { return trains_; }
  /// Units that are complete and agree: their steps may be reported.
  [[nodiscard]] bool found() const noexcept { return found_; }
  /// Why not, if they are not.
  [[nodiscard]] const char* why_not() const noexcept { return why_not_; }
  /// The steps that became known with the last complete unit, the first of them first. \return how many
  [[nodiscard]] std::size_t known() const noexcept { return known_; }
  [[nodiscard]] std::optional<Step> step(std::size_t index);
  /// Ends the last step where the update ended, though nothing is known of the next. \return whether there was one
  bool end_last();

  [[nodiscard]] bool named() const noexcept { return last().named; }
  [[nodiscard]] bool by_name() const noexcept { return last().by_name; }
  /// Steps are of one length, and the update's last launch or the batch's first copy is where they begin.
  [[nodiscard]] bool certain() const noexcept {
    const auto [least, most] = std::minmax_element(lengths_.begin(), lengths_.end());
    return usual_.fixed && usual_.head * thresholds::kPart <= *least &&
           thresholds::within(*least, *most, thresholds::kSame);
  }
  [[nodiscard]] bool fixed() const noexcept { return usual_.fixed; }
  [[nodiscard]] bool by_copies() const noexcept { return usual_.by_copies; }
  [[nodiscard]] std::uint32_t agreed() const noexcept { return agreed_; }
  [[nodiscard]] std::uint32_t steps_of_turn() const noexcept { return turn_; }
  [[nodiscard]] std::uint32_t passes() const noexcept { return last().passes; }
  /// The middle one of the last three steps that are known, and one pass [launch].
  [[nodiscard]] std::uint32_t usual_launches() const noexcept {
    const auto [a, b, c] = lengths_;
    return std::max(std::min(a, b), std::min(std::max(a, b), c));
  }
  [[nodiscard]] std::uint32_t pass_launches() const noexcept;
  /// Share of launches that the last two steps have in common: 0..1.
  [[nodiscard]] double alike() const noexcept { return last().alike; }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return comparison_.held_bytes(); }

 private:
  static constexpr unsigned kMarks = kFlagBackward | kFlagOptimizer | kFlagForeach | kFlagLoss | kFlagToDevice;
  static constexpr std::size_t kKept = 32;

  /// Common properties of the gaps of recent units.
  struct Usual {
    bool by_copies = false;           ///< the copies of a batch mark the begin; otherwise the first product does
    bool fixed = false;               ///< most forward passes are of one length,
    bool exact = false;               ///< nearly to the launch
    std::uint64_t forward = 0;        ///< launches from the begin to the first backward one, of the shortest usual ones
    std::uint64_t tail = 0;           ///< launches between the named update and the next begin
    bool has_head = false;            ///< a forward pass has a few launches before its first product,
    std::uint64_t head = 0;           ///< so many
    std::uint32_t runs = 0, run = 0;  ///< how many runs of copies, and which is the batch's, counted from the last one
    std::uint32_t to_host = 0, updates = 0;
    LaunchPosition example = 0;  ///< the first backward launch of a unit with such a forward pass
    [[nodiscard]] std::uint64_t slack() const noexcept;
  };

  bool mark(const Launch& launch, LaunchPosition p, bool of_engine, bool others);
  bool backward(LaunchPosition p);
  void update(const Launch& launch, LaunchPosition p);
  [[nodiscard]] bool forward_ran(LaunchPosition from, LaunchPosition to) const noexcept;
  [[nodiscard]] bool find_unnamed_update(LaunchPosition next);
  void complete(LaunchPosition next);
  void look_at_gap(TrainingUnit& unit) const noexcept;
  [[nodiscard]] static std::uint32_t fullest_run(const TrainingUnit& unit) noexcept;
  [[nodiscard]] bool names_a_rule(const TrainingUnit& unit) const noexcept;
  void learn();
  void learn_copies(std::span<const TrainingUnit* const> units) noexcept;
  void learn_head(std::span<const TrainingUnit* const> units) noexcept;
  void learn_forward(std::span<const TrainingUnit* const> units) noexcept;
  [[nodiscard]] std::optional<LaunchPosition> start_of(const TrainingUnit& unit) const noexcept;
  void agree();
  [[nodiscard]] bool find_turn(bool& takes_turns);
  [[nodiscard]] bool alike(const TrainingUnit& a, const TrainingUnit& b);
  [[nodiscard]] std::optional<LaunchPosition> begin_of(const TrainingUnit& unit);
  [[nodiscard]] std::optional<LaunchPosition> end_of(const TrainingUnit& unit, const TrainingUnit* next);
  /// The unit so many before the last complete one.
  [[nodiscard]] const TrainingUnit& back(std::size_t i) const noexcept { return units_[(count_ - 1 - i) % kKept]; }
  [[nodiscard]] const TrainingUnit& last() const noexcept { return back(0); }
  [[nodiscard]] bool begins_turn(std::size_t i) const noexcept { return (count_ - 1 - i) % turn_ == phase_; }
  void forget();

  const LaunchHistory& history_;
  StretchComparison comparison_;
  std::array<TrainingUnit, kKept> units_{};  ///< complete ones, by number
  std::uint64_t count_ = 0;
  TrainingUnit now_;
  struct {
    bool loss = false, copies = false;
    LaunchPosition foreach = 0;  ///< the first launch over lists of tensors; 0: none
  } since_;                      ///< the last backward launch or update
  bool updated_ = false;         ///< since the last backward launch
  bool finished_ = false;  ///< the last unit ended with the stream, or so it seems: nothing of the next one is known
  bool trains_ = false, optimizer_seen_ = false, update_seen_ = false, named_seen_ = false;
  std::uint32_t backward_seen_ = 0;
  std::uint32_t engine_ = 0;  ///< thread of the autograd engine; 0: none is known
  bool has_engine_ = true;    ///< or may have one: no thread computes losses, updates and goes backward
  LaunchPosition last_backward_ = 0, last_update_ = 0;
  Usual usual_;
  bool found_ = false;
  const char* why_not_ = "no update followed a backward pass";
  std::size_t known_ = 0;
  std::uint32_t agreed_ = 0, turn_ = 1, phase_ = 0;
  std::array<std::uint32_t, 3> lengths_{};  ///< of the last steps [launch]
};

}  // namespace mfu
