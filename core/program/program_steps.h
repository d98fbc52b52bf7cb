// Training steps, evaluations and generation from what an interpreter reports. Pure: no clock, no interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/program/own_caches.h"
#include "core/program/program_fact.h"

namespace mfu {

enum class ProgramRegion : std::uint8_t {
  kStep,      ///< a training step
  kForward,   ///< a pass in a step, or of a program that does not train
  kBackward,  ///< in a step
  kUpdate,    ///< in a step: an optimizer works
  kEval,      ///< a pass between steps
  kPrefill,   ///< a pass that fills a cache, with several tokens of a sequence
  kDecode,    ///< a pass with one token of a sequence
  kMixed,     ///< a pass of a server with sequences of both kinds
};

/// A region begins or ends. Marks come in the order of time, and nest.
struct ProgramMark {
  enum class Kind : std::uint8_t {
    kOpen,
    kClose,
    /// The open step consists of this pass, too; `region` kStep: its backward pass included; kBackward: the backward
    /// pass that is open is that of this pass.
    kWork
  };
  Kind kind = Kind::kOpen;
  ProgramRegion region = ProgramRegion::kStep;
  std::uint32_t model = 0;  ///< of a pass; of its end: the one that counts for it, 0: that of its begin
  CorrelationId launch{};   ///< newest launch before it
  TimeNs at = 0;
  ShapeWords shape;                      ///< of a pass
  InstanceId range = InstanceId::kNone;  ///< see ProgramFact
};

/// Which optimizers a step consists of: it is over when each of them made one step; of some that make several, as that
/// of a critic, with the last.
class UpdateCycle {
 public:
  void expect(std::uint64_t optimizer) { expected_.insert(optimizer); }
  void forget(std::uint64_t optimizer) { expected_.erase(optimizer); }
  /// An optimizer made a step. \return the training step is over
  bool add(std::uint64_t optimizer);

 private:
  std::set<std::uint64_t> expected_, cycle_;
  std::size_t updates_ = 0, longest_ = 0;  ///< of the cycle at hand; of those before
};

/// Facts in, marks out.
///
///     a step      begins with the first batch fetched or pass made after the previous step and after what is no part
///                 of it, and ends with the last update of its cycle
///     a teacher   passes without gradients before those of two steps in a row are a part of steps
///     evaluation  other passes without gradients between steps
///
/// Part of it is known one step late: the first step waits until an optimizer makes its second update or is gone, one
/// with an unknown pass before it waits for the next one, and a program's first passes wait for a trained one. Others
/// are reported as they happen. Where that takes long, as while a model is compiled, flush() decides. [one thread]
class ProgramSteps {
 public:
  static constexpr std::size_t kMostWaiting = 1u << 13;  ///< facts
  static constexpr std::size_t kWithoutTraining = 128;   ///< facts: then a program is taken for one that generates
  static constexpr std::size_t kMostUnusedUpdates = 64;  ///< before an optimizer that makes none is forgotten

  void add(const ProgramFact& fact);
  /// Decides what waits with what is known.
  void flush();
  [[nodiscard]] std::vector<ProgramMark> take() { return std::exchange(marks_, {}); }

  /// The oldest fact that waits; nothing before it is undecided. nullptr: none waits.
  [[nodiscard]] const ProgramFact* undecided() const noexcept { return waiting_.empty() ? nullptr : &waiting_.front(); }
  /// Two threads run passes that overlap without nesting: launches cannot be separated by time.
  [[nodiscard]] bool confused() const noexcept { return confused_; }
  /// It trains, and there is more than one guess which optimizers make its steps.
  [[nodiscard]] bool starts() const noexcept { return !ready_ && !has_one_guess() && is_training(); }
  /// By the pass alone: that of a server, one with a cache, or kForward.
  [[nodiscard]] static ProgramRegion kind_of(const ProgramFact& pass) noexcept;
  [[nodiscard]] bool trains() const noexcept { return !stepped_.empty(); }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  /// A module in one of its modes.
  using Key = std::pair<std::uint64_t, std::uint8_t>;
  enum class Answer : std::uint8_t { kNo, kYes, kUnknown };

  [[nodiscard]] bool is_of_lead(const ProgramFact& fact);
  void note_optimizer(const ProgramFact& fact);
  void get_ready();
  [[nodiscard]] bool is_training() const noexcept;
  /// All that were made have stepped, or there is one.
  [[nodiscard]] bool has_one_guess() const noexcept { return stepped_.empty() ? made_.size() == 1 : made_.empty(); }
  void learn();
  void decide(bool all);
  bool decide_between_steps(bool all);
  bool leave_out(std::size_t count, bool all);
  void follow(const ProgramFact& fact, Answer trains);
  [[nodiscard]] Answer trains(std::size_t at, bool all) const;
  [[nodiscard]] Answer belongs(const ProgramFact& pass) const;
  [[nodiscard]] static Key key_of(const ProgramFact& pass) noexcept {
    return {pass.subject, static_cast<std::uint8_t>(pass.mode & (ProgramFact::kTraining | ProgramFact::kCache))};
  }
  [[nodiscard]] ProgramRegion region_of(const ProgramFact& pass, bool in_step) const;
  void end_pass(const ProgramFact& end);
  void count_trained(const ProgramFact& end, bool backward);
  void open(ProgramRegion region, const ProgramFact& fact);
  void close(const ProgramFact& fact);
  void mark(ProgramMark::Kind kind, ProgramRegion region, const ProgramFact& fact);
  void drop(std::size_t count);

  std::deque<ProgramFact> waiting_;
  std::vector<ProgramMark> marks_;
  std::vector<ProgramRegion> open_;  ///< inside a step
  struct {
    ProgramFact pass;  ///< or that was the last
    bool trained = false;
    std::optional<ProgramFact> update;  ///< and where the last pass inside of its step(closure) ended
  } running_;
  std::vector<ProgramFact> trained_passes_;  ///< that wait for gradients; kNotReached: a backward pass left it out
  std::set<std::uint64_t> not_reached_;      ///< modules that the backward pass at hand leaves out
  OwnCaches caches_;
  bool passes_seen_ = false;
  bool had_backward_ = false;  ///< this step

  // Which thread works.
  struct {
    std::uint32_t thread = 0, depth = 0;
    bool in_backward = false;
  } lead_;
  std::set<std::uint32_t> guests_;  ///< other threads inside a pass of the lead's, as those of DataParallel
  bool confused_ = false;

  // Optimizers.
  std::set<std::uint64_t> made_, stepped_;  ///< made_: and never stepped
  std::size_t updates_ = 0;
  bool repeated_ = false;  ///< one made its second step
  bool ready_ = false;     ///< the optimizers of a step are known
  UpdateCycle cycle_;
  bool generates_ = false;  ///< it does not train, as far as is known
  std::uint64_t steps_ = 0;
  bool in_step_ = false;

  // Passes before steps. The learner looks ahead of what was decided.
  std::size_t learnt_ = 0;  ///< facts of waiting_ that it has seen
  UpdateCycle learner_;
  bool learner_in_step_ = false;
  std::set<Key> before_, before_last_;  ///< passes before this step, and before the previous one
  std::set<Key> belonging_, separate_;  ///< a part of steps, or not
  std::set<std::uint64_t> trained_;     ///< modules whose passes are trained
};

}  // namespace mfu
