// Finds training steps and serving iterations in one device's stream of launches: no range, no clock, no I/O.
//
// A launch is one token. While nothing is found, the stream is searched now and then for a cycle: names and 8-grams of
// names that return at equal distances are candidates, and what returns must look like a whole step rather than a layer
// (see search). Once a cycle is found, each further step is followed by aligning the surroundings of its boundary, and
// compared with the step before as a multiset; foreign work (evaluation, logging) is stepped over.
//
// A boundary is a cut before a launch: where a step begins or ends. It is told once the step beside it was seen whole,
// so one step late, and after a first find for the steps before it too (back-filled). What turns out to be a part of
// something larger (a micro-step under accumulation) is withdrawn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/activity_record.h"
#include "core/base/units.h"
#include "core/detect/serving_iterations.h"
#include "core/kernels/kernel_role.h"

namespace mfu {

/// One host call that put work on the device, in correlation order; all of a graph's records are one.
struct Launch {
  static constexpr std::uint32_t kFirstKernel = 64;          ///< smaller names are KernelRole values of copies and sets
  static constexpr std::uint32_t kGraphName = 0x8000'0000u;  ///< set in the name of a graph

  std::uint32_t name = 0;    ///< equal for equal kernels, graphs or directions of a copy
  std::uint32_t thread = 0;  ///< host thread; 0: not known
  KernelTraits traits;
  TimeNs begin_ns = 0;  ///< of its first activity
  TimeNs end_ns = 0;    ///< of its last activity
  Grid grid;            ///< of its kernel, the first one of several; zero for copies, sets and graphs
};

enum class StepKind : std::uint8_t { kNone, kStep, kDecode, kPrefillOrMixed, kIteration };

struct StepBoundary {
  std::uint64_t launch = 0;         ///< index of the first launch after the cut, from 0
  TimeNs at_ns = 0;                 ///< when that launch's first activity began
  StepKind kind = StepKind::kNone;  ///< of what ended there; kNone: no step, one begins there
};

/// Who hears of boundaries. In order of launches, except after a withdrawal.
class StepListener {
 public:
  virtual void on_boundary(const StepBoundary& boundary) = 0;
  /// Every boundary at or after `launch` that was told so far is taken back.
  virtual void on_withdrawal(std::uint64_t launch) = 0;

 protected:
  ~StepListener() = default;
};

/// kNotSure: nothing found; no rate of steps may be printed. kLow: times only, no percentiles.
enum class StepConfidence : std::uint8_t { kNotSure, kLow, kMedium, kHigh };
/// How the place of the boundary in the cycle was chosen; kAnywhere: the period is right, the place is arbitrary.
enum class BoundaryRule : std::uint8_t { kAnywhere, kOptimizer, kSampling, kCopies, kGraph, kIdle };

/// What is known now.
struct StepFindings {
  StepKind kind = StepKind::kNone;
  StepConfidence confidence = StepConfidence::kNotSure;
  BoundaryRule rule = BoundaryRule::kAnywhere;
  std::uint32_t period_launches = 0;  ///< 0 while kNotSure
  std::uint32_t micro_steps = 0;      ///< forward and backward passes per optimizer step; 0: not known
  std::uint32_t micro_step_launches = 0;
  std::uint32_t shortest_repeat = 0;  ///< shortest distance at which something returns; 0: none
};

/// `step`, `decode`, `prefill_or_mixed`, `iteration`; `none`.
[[nodiscard]] std::string_view name(StepKind kind) noexcept;
/// `high`, `medium`, `low`, `not_sure`.
[[nodiscard]] std::string_view name(StepConfidence confidence) noexcept;
/// `optimizer`, `sampling`, `h2d`, `graph`, `idle`, `anywhere`.
[[nodiscard]] std::string_view name(BoundaryRule rule) noexcept;

/// [one thread] One process's launches on one device. Memory is fixed at construction, under 3 MB.
class StepDetector {
 public:
  static constexpr std::uint32_t kRing = 1u << 17;        ///< launches that are remembered
  static constexpr std::uint32_t kMaxPeriod = kRing / 2;  ///< [launch]
  static constexpr std::uint32_t kVocabulary = 4096;      ///< distinct names; the least recent makes way

  static constexpr std::uint32_t kSurroundings = 64;  ///< compared on each side of a boundary [launch]

  /// `first`: the index of the first launch that will be added; boundaries are told by such indices.
  explicit StepDetector(StepListener& listener, std::uint64_t first = 0);

  void add(const Launch& launch);
  /// The stream is over: says what can still be said.
  void finish();

  [[nodiscard]] const StepFindings& findings() const noexcept { return findings_; }
  /// The index of the next launch: how many came, counted from `first`.
  [[nodiscard]] std::uint64_t launches() const noexcept { return n_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept;

 private:
  using Key = std::uint16_t;
  using Position = std::uint64_t;

  struct Word {
    std::uint32_t name = 0;
    bool used = false;
    Position last = 0;
  };
  /// What returns: a name or an 8-gram of names.
  struct Anchor {
    std::uint64_t key = 0;   ///< 0: free
    std::uint32_t last = 0;  ///< positions relative to the window's begin
    std::uint32_t gap = 0;
    std::uint32_t run = 0;   ///< equal gaps in a row, now
    std::uint32_t prev = 0;  ///< most equal gaps in a row, before
  };
  struct Candidate {
    std::uint32_t period = 0;
    std::uint32_t members = 0;
    std::uint32_t repeats = 0;  ///< whole cycles that look like the one after
    double cover = 0;           ///< share of the remembered names that occur in it
    double alike = 0;           ///< of the last two cycles: equal at the same place, or as multisets
    double by_name = 0;         ///< of the last two cycles, in order: every name weighs alike
    double composite = 0;       ///< share of its 8-grams that are there more than once
    std::uint8_t marks = 0;     ///< flags in both of the last two cycles
    bool optimizer = false;     ///< both hold one, at the same place
    std::uint32_t updates = 0;  ///< launches of it
    bool locks = false;
  };
  struct Cycle {
    std::uint32_t period = 0;
    BoundaryRule rule = BoundaryRule::kAnywhere;
    Position begin = 0, end = 0;  ///< the step that others are compared with; its end is the boundary to look for
    std::uint8_t marks = 0;
    bool optimizer = false;
    double cover = 0;
    bool by_family = false;  ///< found among families, not names
    double agreement = 0.6;  ///< what the surroundings of a boundary must share with those of `end`
  };
  struct Alignment {
    double share = 0;    ///< of the launches
    double by_name = 0;  ///< the same with every name weighing alike, however often it occurs
  };
  struct Tally {  ///< of one name in the last cycle, and in the one before
    std::uint32_t count = 0, unlike = 0, before = 0;
  };
  struct Found {
    Position at = 0;
    double score = 0;  ///< share of the surroundings that agrees
  };
  enum Side : std::uint8_t { kBefore = 1, kAfter = 2, kBoth = 3 };

  [[nodiscard]] static std::uint32_t slot(Position p) noexcept { return static_cast<std::uint32_t>(p) & (kRing - 1); }
  [[nodiscard]] Position oldest() const noexcept { return n_ > first_ + kRing ? n_ - kRing : first_; }
  [[nodiscard]] Key id(Position p) const noexcept { return ids_[slot(p)]; }
  [[nodiscard]] Key family(Position p) const noexcept { return families_[slot(p)]; }
  [[nodiscard]] std::uint8_t flags(Position p) const noexcept { return flags_[slot(p)]; }
  [[nodiscard]] bool is_optimizer(Position p) const noexcept {
    return (flags(p) & kFlagOptimizer) != 0 || (training_ && (flags(p) & kFlagForeach) != 0);
  }
  [[nodiscard]] std::uint32_t surroundings() const noexcept;
  [[nodiscard]] std::uint32_t slack() const noexcept { return cycle_.period / 32 + 16; }

  Key intern(std::uint32_t name);
  void forget_words();
  [[gnu::noinline]] void note_training(std::uint8_t flags);
  [[nodiscard]] bool training_is_over() const noexcept;
  void work(bool final);
  [[nodiscard]] std::uint32_t window_to_search(bool followed, bool final);
  void notice_change();
  void search_anew();
  void search(std::uint32_t window);
  std::optional<Candidate> best_candidate(Position begin, const std::vector<Key>& keys);
  void add_burst_candidates(Position begin, std::vector<Candidate>& candidates) const;
  template <typename Visit>
  bool align(Position end, std::uint32_t period, const std::vector<Key>& keys, Visit&& visit) const;
  Alignment alignment(Position end, std::uint32_t period, const std::vector<Key>& keys);
  bool holds_more(const Candidate& longer, const Candidate& shorter, const std::vector<Key>& keys);
  void evaluate(Candidate& candidate, Position begin, const std::vector<Key>& keys);
  std::uint32_t longest_undisturbed(std::uint32_t period, Position begin, const std::vector<Key>& keys);
  [[nodiscard]] std::uint32_t repeats_needed(const Candidate& candidate) const noexcept;
  void lock(const Candidate& candidate, bool by_family);
  void set_reference(Position begin, Position end);
  void measure_agreement();
  void check_cover();
  [[nodiscard]] bool is_part_of(std::uint32_t period);
  void unlock();
  [[nodiscard]] Position place_boundary(Position begin, std::uint32_t period, BoundaryRule& rule) const;
  bool follow(bool final);
  bool scan(bool final);
  [[nodiscard]] Found find_boundary(Position expected, std::uint32_t slack, Side side) const;
  [[nodiscard]] double bag_alike(Position a, Position a_end, Position b, Position b_end,
                                 const std::vector<Key>& keys) const;
  [[nodiscard]] bool starts_like_step(Position p) const noexcept;
  [[nodiscard]] bool ends_with_update(Position p) const noexcept;
  bool step_seen(Position begin, Position end, bool another_follows);
  bool holds_optimizer(Position begin, Position end);
  void emit(Position p, StepKind kind);
  [[nodiscard]] StepKind kind_of_cycle() const noexcept;
  [[gnu::noinline]] void iteration_ended();
  void withdraw(Position from);
  void find_micro_steps();
  [[nodiscard]] std::uint32_t longest_without_update() const noexcept;
  void judge();

  StepListener& listener_;
  std::vector<Key> ids_, families_;
  std::vector<std::uint8_t> flags_;
  std::vector<TimeNs> begins_;
  std::vector<Word> words_;
  std::vector<Key> word_index_;
  std::vector<Anchor> anchors_;
  mutable std::vector<std::int32_t> counts_;  ///< by key; all zero between uses
  std::vector<Tally> tallies_;                ///< likewise
  std::vector<std::uint32_t> grams_;
  mutable std::vector<std::int32_t> cost_, mark_;
  std::array<std::int32_t, 2 * kSurroundings> weights_{};  ///< of the names around cycle_.end

  Position first_ = 0, n_ = 0;
  std::uint32_t word_count_ = 0;
  std::uint32_t free_word_ = 0;  ///< where to look for a free place
  Position newest_word_ = 0;
  Position cover_checked_ = 0;
  bool quiet_ = false;  ///< no new name for long
  std::uint32_t backward_seen_ = 0, optimizer_seen_ = 0;
  bool training_ = false;
  Position last_trained_ = 0;       ///< what occurs in training alone was seen there last
  std::uint32_t training_gap_ = 0;  ///< longest stretch of training without any
  bool optimizer_known_ = false;
  Position next_work_ = 0;
  Position next_search_ = 0;
  Position next_middle_search_ = 0;
  Position next_full_search_ = 0;
  Position searching_since_ = 0;
  bool families_seen_ = false;
  std::uint32_t shortest_ = 0;

  bool locked_ = false;
  Cycle cycle_;
  bool in_step_ = false;  ///< step_begin_ is a boundary that the step before it led to
  Position step_begin_ = 0;
  Position scan_ = 0;  ///< where the next step is looked for while !in_step_
  Position first_told_ = 0;
  Position last_told_ = 0;    ///< 0: none
  Position told_before_ = 0;  ///< last_told_ when the lock began
  std::uint64_t steps_ = 0;   ///< seen whole under this lock
  std::uint32_t last_length_ = 0;
  double same_length_ = 0, exact_ = 0;  ///< moving averages over steps
  std::uint32_t micro_steps_ = 0, micro_length_ = 0;
  bool one_update_ = false;  ///< the cycle's updates are not spread over it, as those of several steps are

  ServingIterations serving_;
  bool serving_found_ = false;
  std::array<ServingIterations::End, 32> ends_{};  ///< of iterations before they are found
  StepFindings findings_;
  StepFindings followed_;  ///< the last that a step was seen under
};

}  // namespace mfu
