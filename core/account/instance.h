// One region instance on the drain's side: its place in the nesting, its work, and its account on each device.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/account/idle_work.h"
#include "core/account/instance_products.h"
#include "core/attribution/instance_table.h"
#include "core/base/ids.h"
#include "core/base/units.h"
#include "core/model/flops_model.h"
#include "core/rows/region_summary.h"

namespace mfu {

inline void add_times(ClassTimes& to, const ClassTimes& more) noexcept {
  for (std::size_t c = 0; c < kTimeClasses; ++c) to[c] += more[c];
}

/// The time of an instance on one device within one window.
struct WindowSlice {
  DurationNs busy_ns = 0;  ///< union of its kernels
  DurationNs kernel_sum_ns = 0;
  DurationNs matmul_sum_ns = 0;
  std::int64_t window = 0;   ///< window index
  ClassTimes time_ns{};      ///< of its elapsed time
  IdleGaps idle;             ///< of time_ns[kIdle]
  IdleWork::Sums idle_work;  ///< likewise, as far as it is known

  [[nodiscard]] DurationNs elapsed_ns() const noexcept {
    DurationNs sum = 0;
    for (const DurationNs t : time_ns) sum += t;
    return sum;
  }
};

/// The decode passes inside an instance.
struct DecodePasses {
  std::int64_t passes = 0;  ///< one token per sequence each; 0: it does not decode
  double sequences = 0;     ///< summed over the passes
  bool batch_known = true;  ///< of every pass

  /// Sequences of a pass, their mean where it changed; 0: not known.
  [[nodiscard]] std::int64_t batch() const noexcept {
    return batch_known && passes > 0 ? std::llround(sequences / static_cast<double>(passes)) : 0;
  }
  void add(const DecodePasses& other) noexcept {
    passes += other.passes;
    sequences += other.sequences;
    batch_known = batch_known && other.batch_known;
  }
};

struct Instance;

/// The account of one instance on one device.
struct InstanceOnDevice {
  // The fields that every activity and every begin touch come first.
  /// Its kernels so far cover no moment from here on. The sweep meets them in order of begin, so this one number is
  /// enough to add up their union.
  TimeNs covered_until_ns = std::numeric_limits<TimeNs>::min();
  TimeNs first_activity_ns = std::numeric_limits<TimeNs>::max();
  TimeNs last_activity_end_ns = std::numeric_limits<TimeNs>::min();
  std::uint64_t kernels = 0;
  bool active = false;     ///< had device activity
  bool opened = false;     ///< its open mark was passed
  bool begun = false;      ///< begin_ns is known
  bool ended = false;      ///< end_ns is known
  bool end_due = false;    ///< closed and past its last activity, but not begun yet
  bool end_waits = false;  ///< closed and past its last activity so far, and more may come
  bool added_to = false;   ///< since those around it learned when its last activity ends
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;
  ClassTimes counted{};                      ///< the device's class times up to where portions were cut
  std::array<DurationNs, 3> counted_gaps{};  ///< likewise its gaps by length
  IdleWork::Sums counted_work;               ///< and by what the host did
  WindowSlice open_portion;                  ///< of the window that the device's timeline is in
  Instance* newest_inside = nullptr;         ///< the last that opened directly inside it, until that ends here
  Instance* behind = nullptr;                ///< begins here where it ends: opened later, inside the same one
  std::vector<WindowSlice> portions;         ///< of earlier windows that are not out yet
  std::uint64_t untimed = 0;                 ///< launches whose records carry no times
  std::uint64_t nth = 0;                     ///< index among the region's ended instances on the device
  ClassTimes time_ns{};                      ///< all portions, those emitted early included
  DurationNs elapsed_ns = 0;                 ///< likewise
  DurationNs kernel_sum_ns = 0;
  DurationNs matmul_sum_ns = 0;

  /// It launched something here, whether or not the sweep has met it.
  [[nodiscard]] bool has_work() const noexcept {
    return active || untimed != 0 || last_activity_end_ns != std::numeric_limits<TimeNs>::min();
  }

  /// An activity begins.
  void add_activity(TimeNs begin) noexcept {
    active = true;
    first_activity_ns = std::min(first_activity_ns, begin);
  }

  /// A kernel ran in [begin, end), and none that was added before began later.
  void add_kernel(TimeNs begin_ns_of_it, TimeNs end_ns_of_it, bool matmul) noexcept {
    const DurationNs length = end_ns_of_it - begin_ns_of_it;
    open_portion.kernel_sum_ns += length;
    open_portion.matmul_sum_ns += matmul ? length : 0;
    open_portion.busy_ns += extend(covered_until_ns, begin_ns_of_it, end_ns_of_it);
  }

  /// The length that [begin, end) adds to a union of intervals that began before it and end at `covered_until`.
  static DurationNs extend(TimeNs& covered_until, TimeNs begin, TimeNs end) noexcept {
    const TimeNs from = std::max(covered_until, begin);
    covered_until = std::max(covered_until, end);
    return covered_until - from;
  }
};

/// The kernels' evidence on an instance that no range named, or the interpreter's.
struct DetectedWork {
  Shape shape;                        ///< of one pass
  std::int64_t passes = 0;            ///< forward and backward passes that a training step consists of; 0: not known
  std::int64_t parts = 1;             ///< of a pass of a step: how many of its kind the step has
  bool by_interpreter = false;        ///< the program's interpreter reported it, and not its kernels
  const FlopsModel* model = nullptr;  ///< the model that runs in it; nullptr: that of the config
  std::optional<double> flop;         ///< [FLOP] where they were counted as it ran, without a config
  bool no_attention = false;          ///< there is no fused attention in `flop`
};

/// Ranges inside an instance that said their own work, and have closed.
struct ClosedParts {
  Work sum = Work::none();                       ///< of those that no window was given yet
  Work given = Work::none();                     ///< of those that went into windows emitted early
  std::map<std::int64_t, Work> by_window;        ///< by the window their range closed in; those in `sum`
  bool by_interpreter = false;                   ///< they are passes that it reported
  bool no_attention = false, attention = false;  ///< some of them have no fused attention; some may have it
};

/// The shape of an instance's work, and where it comes from.
struct InstanceShape {
  std::optional<std::int64_t> cached_at_open;  ///< ShapeResolver::cached when its range opened
  ShapeWords own_shape;                        ///< as its range gave it
  std::array<ShapeSource, ShapeWords::kCount> shape_source{};
  Shape shape;                      ///< as far as it was resolved
  std::int64_t said_tokens = 0;     ///< of a pass, if not read from products; 0: not known
  std::int64_t seen_rows = 0;       ///< of a pass of its products; 0: not known
  std::int64_t seen_sequences = 0;  ///< likewise
  FlopSource flop_source = FlopSource::kNone;
};

/// Its place: the fields that every activity reads, and those that its begin and end on a device read, together.
struct InstanceLinks {
  InstanceId id = InstanceId::kNone;
  std::uint32_t region_path = 0;         ///< of its region inside those around it: index into the ledger's chains
  Instance* parent = nullptr;            ///< enclosing instance; of a part: the instance that it belongs to
  Instance* root = nullptr;              ///< top-level instance around it; itself when top-level
  std::vector<InstanceOnDevice> shares;  ///< by device index; grows with the devices
  Instance* next_in_bucket = nullptr;
  TimeNs open_ns = 0;
  TimeNs close_ns = 0;
  std::uint32_t thread = 0;  ///< serial of the opening thread
  std::uint32_t live_children = 0;
  std::uint32_t shares_left = 0;  ///< devices on which it has not ended
  InstanceKind kind = InstanceKind::kThread;
  bool closed = false;
  bool awaited = false;  ///< it, or an instance inside it, has a launch whose record has not come
  std::vector<std::pair<std::uint32_t, Instance*>> waiting;  ///< (device, one directly inside it) that begin with it
};

struct Instance : InstanceLinks, InstanceShape {
  Instance() noexcept { root = this; }

  RegionId region = RegionId::kNone;
  RuleId rule = RuleId::kNone;
  Phase phase = Phase::kNone;
  bool closed_by_exit = false;
  std::unique_ptr<const DetectedWork> seen_work;  ///< by its kernels or by the interpreter; absent: by neither
  std::optional<std::uint32_t> home_device;       ///< where its thread launched; for instances without device activity
  std::unique_ptr<InstanceProducts> products;     ///< of it and of all inside it; none: no matmul so far
  std::unique_ptr<InstanceProducts> spare_products;  ///< of an earlier instance, empty: room for `products`
  AttentionWork attention;                           ///< of its attention kernels, once their shape is known

  Work work;                           ///< once closed: by its shape, or the sum of its parts
  DecodePasses decode;                 ///< once closed, likewise; of the parts that closed meanwhile
  std::unique_ptr<ClosedParts> parts;  ///< none: no part has closed

  std::size_t index_in_live = 0;

  [[nodiscard]] InstanceProducts& products_of_it() {
    if (!products) products = spare_products ? std::move(spare_products) : std::make_unique<InstanceProducts>();
    return *products;
  }
  [[nodiscard]] bool top_level() const noexcept { return parent == nullptr; }
  /// A region around it has a phase, and so counts its own work.
  [[nodiscard]] bool inside_work() const noexcept {
    const Instance* outer = parent;
    while (outer != nullptr && outer->phase == Phase::kNone) outer = outer->parent;
    return outer != nullptr;
  }
  [[nodiscard]] bool prefills() const noexcept { return phase == Phase::kPrefill || phase == Phase::kMixed; }
  /// Its range gave its own amount of work, which then covers all parts inside.
  [[nodiscard]] bool says_itself() const noexcept {
    return own_shape.has(ShapeWords::kTokens) || own_shape.has(ShapeWords::kNewTokens);
  }
  /// Its work is the sum of its parts.
  [[nodiscard]] bool by_parts() const noexcept { return parts && (parts->by_interpreter || !says_itself()); }
  [[nodiscard]] const DetectedWork& detected() const noexcept {
    static constexpr DetectedWork kNone;
    return seen_work ? *seen_work : kNone;
  }
  /// Fused attention ran in it, as that of a custom operator, that what was counted leaves out.
  [[nodiscard]] bool leaves_out_attention() const noexcept {
    const bool none_counted = parts ? parts->no_attention && !parts->attention : detected().no_attention;
    return none_counted && products && products->attention_forward() + products->attention_backward() > 0;
  }
};

}  // namespace mfu
