// Regions where no range names any: findings of the step detector become instances of the run's account.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/account/instance_products.h"
#include "core/account/ledger.h"
#include "core/attribution/instance_table.h"
#include "core/base/activity_record.h"
#include "core/detect/launch_fold.h"
#include "core/detect/pass_rows.h"
#include "core/detect/step_detector.h"
#include "core/detect/step_findings.h"
#include "core/detect/step_phases.h"
#include "core/drain/held_records.h"
#include "core/kernels/kernel_names.h"
#include "core/kernels/kernel_traits.h"
#include "core/ranges/region_rules.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// For people: `training step every 1219 launches, confidence high, cut by optimizer`, or `no step found`.
[[nodiscard]] std::string sentence(const StepFindings& findings);

/// Facts beside the products of one iteration that decide between decode and prefill.
struct PassContext {
  StepKind by_names = StepKind::kIteration;  ///< by kernels' names and the rows of other kernels; never kStep
  bool last_positions = false;  ///< logits of fewer positions than tokens were seen before: of each sequence's last
  bool graph = false;           ///< a graph ran in it: its batch may be filled up to nearly twice as many rows
};

/// Whether an iteration of a server decodes or prefills, by what it multiplied. One query for each sequence: decode.
/// More: prefill; but a few, where kernels are known to decode, are tokens that are tried at once. Where the sequences
/// are not known: logits of fewer positions than tokens prefill, and those of all tokens decode in a program that
/// computes the logits of last positions only. \return `by_names` where the products do not decide
[[nodiscard]] StepKind kind_of_pass(const SeenShape& seen, const PassContext& context) noexcept;

struct DetectionOptions {
  /// A stored trace, whose first steps are found with the help of later ones: as far as there is room for it, nothing
  /// is given out before the end.
  bool whole_trace = false;
  /// Say what the detectors consider, and why they take or refuse it: so many lines for each device at most, see
  /// take_explained(); 0: nothing.
  std::uint32_t most_explained = 0;
};

/// [mfu-drain] Between Drain and Ledger for work that no range owns. It keeps such records back until their step is
/// known, gives them to the Ledger with the instance they belong to, and says how far the Ledger may go meanwhile. One
/// detector per device; none once a range has opened a region, since what the program says is better.
///
/// Memory: kMostHeld records, a third more for what was let go of, and a StepDetector (under 3 MB) for each of
/// kMostDevices devices at most.
class DetectedRegions {
 public:
  static constexpr std::uint32_t kMostDevices = 8;           ///< further ones have no detector
  static constexpr std::size_t kMostHeld = 1u << 17;         ///< records, all devices together: 8 MiB
  static constexpr std::size_t kMostHeldOfTrace = 1u << 20;  ///< the same of a whole trace: 72 MiB
  static constexpr std::uint32_t kMostExplained = 1000;      ///< as a live run asks for
  static constexpr DurationNs kPrintHold = kNsPerSecond;  ///< a find must stand so long before anything is made of it

  DetectedRegions(Ledger& ledger, const RegionRules& rules, KernelNames& names, DetectionOptions options);
  ~DetectedRegions();

  /// A record that no instance owns. `first_of_launch`: the launch had none before; `thread`: of the launch, or 0.
  void add(const ActivityRecord& record, bool first_of_launch, std::uint32_t thread);
  /// A range opened a region: the program names its work itself from `at` on.
  void stand_aside();
  /// Ranges and the interpreter name no region any more.
  void resume() noexcept { aside_ = false; }

  /// Every launch up to and with `complete` has all its records; everything that began before `watermark` was reported.
  /// \return how far the Ledger may be advanced
  [[nodiscard]] TimeNs settle(CorrelationId complete, TimeNs watermark);
  /// The run is over: nothing is held back any more.
  void finish();

  /// Says in a window about to go out who named its regions, and what was found.
  void describe(WindowSummary& window) const;
  /// A line for the user, once each.
  [[nodiscard]] std::vector<std::string> take_notices();
  /// Candidates of the detectors since the last call, as `gpu0 launch 1024: ...`, with the words and the numbers of
  /// launches that `mfu replay --detect --explain` has for the same launches; empty unless it was asked for.
  [[nodiscard]] std::vector<std::string> take_explained();

  /// Launches that are in an instance of a detected region.
  [[nodiscard]] std::uint64_t attributed() const noexcept { return attributed_; }
  [[nodiscard]] std::size_t held_records() const noexcept { return held_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept;
  /// settle() would give records out, since they are too many.
  [[nodiscard]] bool is_full() const noexcept { return held_ > most_held() + kMostHeld / 4; }

 private:
  struct Device;

  /// \param device below kMostDevices
  [[nodiscard]] Device& device_at(std::uint32_t device) {
    return device < devices_.size() && devices_[device] != nullptr ? *devices_[device] : new_device(device);
  }
  [[gnu::noinline]] Device& new_device(std::uint32_t device);
  void feed(Device& device, CorrelationId complete);
  void feed_all(Device& device, bool last);
  void feed_launch(Device& device, std::span<HeldRecord> records);
  [[nodiscard]] Launch fold(std::span<const HeldRecord> records);
  [[gnu::noinline, nodiscard]] Launch fold_several(std::span<const HeldRecord> records);
  void take_steps(Device& device, bool all);
  void judge_by_products(Device& device);
  void say_found(Device& device, StepKind kind);
  void make_instance(Device& device, const StepBoundary& begin, const StepBoundary& end, StepKind next);
  [[nodiscard]] static std::optional<TimeNs> pause_before(const Device& device, TimeNs opens, const StepBoundary& end,
                                                          StepKind next);
  [[nodiscard]] Shape look_at(const Device& device, std::uint64_t begin, std::uint64_t end, StepKind kind,
                              bool launches);
  void prepare(InstanceSlot& slot, const Device& device, RegionId region);
  void give_out(Device& device, std::uint64_t before, InstanceId owner);
  void give_out_one(const HeldRecord& held, InstanceId owner);
  void let_go(Device& device);
  [[nodiscard]] std::size_t most_held() const noexcept { return options_.whole_trace ? kMostHeldOfTrace : kMostHeld; }
  [[nodiscard]] DurationNs patience(const Device& device) const noexcept;
  void note_not_sure(Device& device);
  void end_with_work(Device& device);
  /// Begin of the earliest record held back.
  [[nodiscard]] KernelTraits traits_of_record(const ActivityRecord& record) {
    const std::uint32_t name = raw(record.name);
    if (record.kind == ActivityKind::kKernel && name < traits_.size() && traits_[name]) [[likely]]
      return *traits_[name];
    return traits_of_new(record);
  }
  [[gnu::noinline]] KernelTraits traits_of_new(const ActivityRecord& record);
  [[nodiscard]] RegionId region_of(StepKind kind) const noexcept;

  Ledger& ledger_;
  const RegionRules& rules_;
  KernelNames& names_;
  DetectionOptions options_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::optional<KernelTraits>> traits_;  ///< by KernelNameId
  std::vector<Launch> step_;                         ///< launches of the step at hand
  StepPhases phases_;
  std::size_t held_ = 0;  ///< by all devices
  std::uint64_t attributed_ = 0;
  std::uint32_t next_id_ = 0;
  TimeNs first_begin_ = 0;  ///< of the run's first record; 0: none yet
  TimeNs newest_begin_ = 0;
  TimeNs now_ = 0;  ///< of the newest record, or as far as everything was reported
  bool aside_ = false;
  std::vector<std::string> notices_, explained_;
};

}  // namespace mfu
