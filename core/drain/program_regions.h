// Regions of a program whose interpreter reports what it does: its facts become instances of the run's account.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/base/activity_record.h"
#include "core/drain/detected_regions.h"
#include "core/drain/held_ranges.h"
#include "core/drain/held_records.h"
#include "core/drain/instance_feed.h"
#include "core/model/flops_model.h"
#include "core/program/program_steps.h"
#include "core/program/range_passes.h"
#include "core/ranges/region_rules.h"

namespace mfu {

/// [mfu-drain] Between Drain and DetectedRegions, for work that no range owns. A fact carries the newest launch of its
/// moment, so records are divided by launches, and not by time. Records wait until it is decided what the program did
/// when they were launched. They go on to the detector until a fact makes an instance, which switches it off.
class ProgramRegions {
 public:
  static constexpr std::size_t kMostHeld = 1u << 17, kMostCounted = 1u << 13;  ///< records: 8 MiB; models: 1 MiB
  static constexpr std::uint32_t kFirstCounted = 1u << 16;                     ///< models from here on have no config
  static constexpr std::uint32_t kFirstOnce = 1u << 20;                        ///< and these are of one pass each
  static constexpr std::uint32_t kConfig = 1u << 24;  ///< times its config's number, while that may not be readable

  /// \param given the model of the user's config; nullptr: none. \param detected nullptr: no detector.
  ProgramRegions(Ledger& ledger, const RegionRules& rules, const FlopsModel* given, DetectedRegions* detected);

  /// `at` in ns of the account's clock; in the order in which they were reported.
  void add_fact(const ProgramFact& fact);
  void add_model(std::uint32_t number, FlopsModel model);
  /// Whether there may be facts about the records that are added from now on. While there are none, none waits.
  void expect_facts(bool expected) noexcept { expects_ = expected; }
  /// Decides what waits with what is known.
  void decide() { steps_.flush(); }
  /// Facts are of no use any more.
  [[nodiscard]] bool stopped() const noexcept { return stopped_ && !by_ranges_; }
  /// A record that no instance owns, see DetectedRegions::add, or one whose `owner` waits here.
  void add(const ActivityRecord& record, bool first_of_launch, std::uint32_t thread, InstanceId owner = {});
  /// A range of the program opened. \return it waits here until it is known whether a step is around it
  [[nodiscard]] bool open_range(const InstanceFeed::Event& event);
  /// It closed. \return that waits here, too
  [[nodiscard]] bool close_range(const InstanceFeed::Event& event, std::optional<std::uint32_t> home_device);
  /// The slots of those that closed here and are in the Ledger since the last call.
  [[nodiscard]] std::vector<InstanceSlot*> take_given_out() { return ranges_.take_closed(); }
  [[nodiscard]] bool holds(InstanceId range) const { return ranges_.size() != 0 && ranges_.holds(range); }
  /// Records that no range owns may go straight to the detector: no fact is expected, and no region is open.
  [[nodiscard]] bool leaves_to_detector() const noexcept { return !expects_ && !made_ && open_.empty(); }
  /// See DetectedRegions::settle.
  [[nodiscard]] TimeNs settle(CorrelationId complete, TimeNs watermark);
  void finish();
  /// Facts are not to be had any more: waiting records are outside, and the detector may go on.
  void stop();
  /// Ranges name the regions from now on; without a config, passes in them are reported work.
  void leave_to_ranges();

  [[nodiscard]] std::uint64_t attributed() const noexcept { return attributed_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_.held_bytes(); }
  [[nodiscard]] std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  /// [FLOP] of each pass of a model; below 0: not known.
  struct PassFlop {
    double forward = -1, backward = -1;
    bool no_attention = false;
  };

  [[nodiscard]] ProgramFact with_model(ProgramFact fact) const;
  void take_facts(bool all);
  void take_marks(CorrelationId complete, TimeNs until, bool all);
  void give_out_range();
  void apply(const ProgramMark& mark);
  void add_work(const ProgramMark& mark, InstanceId whole);
  void add_passes_to_ranges();
  void add_to_ranges(const ProgramMark& pass);
  [[nodiscard]] bool fits_ranges(const ProgramMark& begin) const;
  void stop_naming();
  void open(const ProgramMark& mark);
  void open(const InstanceSlot& slot, const ProgramMark& mark);
  void close(const ProgramMark& mark);
  void prepare(InstanceSlot& slot, RegionId region, const ProgramMark& mark);
  void close_layer(TimeNs at);
  void change_layer(const ProgramFact& fact);
  void give_out(CorrelationId until, TimeNs end = std::numeric_limits<TimeNs>::max());
  void give_out_launches(CorrelationId until);
  bool give_out_before(const HeldRecord* end);
  void give_out_one(const HeldRecord& held);
  [[nodiscard]] DetectedWork work_of(const ProgramMark& mark);
  [[nodiscard]] bool is_counted(const ProgramMark& mark) const;
  [[nodiscard]] RegionId region_of(ProgramRegion region) const noexcept;
  [[nodiscard]] bool is_late() const noexcept;
  [[nodiscard]] bool holds_many() const noexcept;
  [[nodiscard]] DurationNs patience() const noexcept;
  [[nodiscard]] TimeNs settle_steps(CorrelationId complete, TimeNs watermark);

  Ledger& ledger_;
  const RegionRules& rules_;
  std::optional<FlopsModel> given_;
  DetectedRegions* detected_;
  ProgramSteps steps_;
  HeldRecords held_;
  std::deque<ProgramMark> marks_;  ///< decided, and not applied
  std::deque<ProgramFact> layers_;
  HeldRanges ranges_;
  RangePasses in_ranges_;          ///< they wait until the ranges around them are in the account
  std::deque<InstanceSlot> open_;  ///< innermost last; a slot cannot be moved
  std::map<std::uint32_t, FlopsModel> models_;
  std::map<std::uint32_t, PassFlop> counted_;  ///< of models without a config
  std::set<std::uint32_t> trained_;            ///< models
  std::optional<ProgramMark> uncounted_;       ///< the pass that is open; its FLOP are known at its end
  std::uint32_t next_id_ = 0;
  std::uint32_t skipped_ = 0;  ///< open regions whose begin came too late
  CorrelationId given_out_{};  ///< launches up to this one are in the Ledger
  TimeNs now_ = 0;
  struct {
    DurationNs length = 0;
    TimeNs begin = 0;
  } last_step_;
  std::optional<std::uint32_t> home_;  ///< device of the newest record
  std::uint64_t attributed_ = 0;
  bool passing_ = false;  ///< it takes too long until the first step is known: nothing is held back
  bool expects_ = true;
  bool in_layer_ = false;  ///< that is the innermost
  bool stopped_ = false, made_ = false, contradicted_ = false;
  bool by_ranges_ = false;  ///< regions are named by ranges, and have the FLOP of the passes in them
  std::vector<std::string> notices_;
};

}  // namespace mfu
