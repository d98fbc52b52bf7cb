// A device's latest activities, kept so that work which is recorded late changes the class of the time that it took.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/units.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// Work that was recorded after the account had gone on past its begin.
struct LateActivity {
  TimeNs begin_ns, end_ns;
  TimeClass time_class;
};

/// A stretch of the past that turns out to be of another class.
struct Correction {
  TimeNs begin_ns, end_ns;
  TimeClass from, to;  ///< `to` comes before `from` in the order of precedence
  std::uint32_t late;  ///< index of the work that makes it so
};

/// Corrections in the order of time, with the sum over any interval.
class Corrections {
 public:
  /// \param list disjoint, in order.
  explicit Corrections(std::vector<Correction> list);

  [[nodiscard]] const std::vector<Correction>& list() const noexcept { return list_; }
  /// Of at least one.
  [[nodiscard]] Interval hull() const noexcept { return {list_.front().begin_ns, list_.back().end_ns}; }
  /// Change of the time of each class within the interval. Sums to 0.
  [[nodiscard]] ClassTimes within(Interval interval) const noexcept;

 private:
  [[nodiscard]] ClassTimes before(TimeNs at) const noexcept;

  std::vector<Correction> list_;
  std::vector<ClassTimes> sums_;  ///< [i]: of the first i
};

/// [mfu-drain] The newest activities of a device, 16 B each. What is asked for rarely is kept cheaply: activities are
/// copied in once they were swept, in any order, and looked at only when late work comes.
class TimeHistory {
 public:
  static constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

  explicit TimeHistory(TimeNs origin) : known_from_(origin) {}

  /// Items with `begin_ns`, `end_ns` and `time_class()`.
  template <typename Item>
  void add(const Item* first, const Item* last) {
    while (first != last) {
      if (first->end_ns - first->begin_ns > kLong) {
        add_long(first->begin_ns, first->end_ns, first->time_class());
        ++first;
        continue;
      }
      if (next_ == ring_.size()) make_room();
      Past* slot = ring_.data() + next_;
      const Past* const full = ring_.data() + ring_.size();
      TimeNs known_from = known_from_;
      for (; first != last && slot != full; ++first, ++slot) {
        const DurationNs length = first->end_ns - first->begin_ns;
        if (length > kLong) break;
        known_from = std::max(known_from, slot->begin_ns + static_cast<DurationNs>(slot->length));
        *slot = {first->begin_ns, static_cast<std::uint32_t>(length), first->time_class()};
      }
      known_from_ = known_from;
      next_ = static_cast<std::size_t>(slot - ring_.data());
    }
  }
  void add(TimeNs begin, TimeNs end, TimeClass time_class) {
    if (end - begin > kLong) return add_long(begin, end, time_class);
    if (next_ == ring_.size()) make_room();
    Past& slot = ring_[next_++];
    known_from_ = std::max(known_from_, slot.begin_ns + static_cast<DurationNs>(slot.length));
    slot = {begin, static_cast<std::uint32_t>(end - begin), time_class};
  }

  /// Activities that ended after `from` are kept while there is room for `most`; kNever: the newest kFew.
  void keep_from(TimeNs from, std::size_t most) noexcept {
    keep_from_ = from;
    most_ = std::max(most, kFew);
  }
  /// Complete from here on.
  [[nodiscard]] TimeNs known_from() const noexcept { return known_from_; }

  /// Adds late work and says what it changes before `now`, in order of time, in parts of at most kPart corrections.
  /// Its activities before known_from() are not reported.
  template <typename Each>
  void correct(const std::vector<LateActivity>& late, TimeNs now, Each&& each) {
    Sweep sweep = begin_correction(late, {earliest_of(late, now), now});
    while (true) {
      std::vector<Correction> part = next_part(sweep, kPart);
      if (part.empty()) break;
      each(Corrections(std::move(part)));
    }
    for (const LateActivity& work : late) add(work.begin_ns, work.end_ns, work.time_class);
  }
  /// The classes of an interval, as corrections of idle time.
  [[nodiscard]] Corrections classes(Interval interval) const;

 private:
  static constexpr std::size_t kFew = 1u << 12;
  static constexpr std::size_t kPart = 1u << 12;
  static constexpr DurationNs kLong = 10'000'000;  ///< so that forgetting one forgets little time before it
  static constexpr std::size_t kMostLong = 1u << 12;
  static constexpr std::uint32_t kNobody = ~0u;
  static constexpr std::size_t kUnions = kTimeClasses - 1;  ///< every class but idle

  /// One that is not used yet was over before all time.
  struct Past {
    TimeNs begin_ns = std::numeric_limits<TimeNs>::min();
    std::uint32_t length = 0;
    TimeClass time_class = TimeClass::kIdle;
  };
  static_assert(sizeof(Past) == 16);
  struct Began {
    TimeNs begin_ns, end_ns;
    TimeClass time_class;
    std::uint32_t late;  ///< kNobody: it was known
  };
  /// Goes over what began, in order of begin, once with and once without the late work.
  struct Sweep {
    std::vector<Began> began;
    std::size_t next = 0;
    TimeNs at = 0, stop = 0;
    /// By class: the work of that class and those before it covers no moment from here on.
    std::array<TimeNs, kUnions> known_until{}, true_until{};
    std::array<std::uint32_t, kUnions> covered_by{};
  };

  void make_room();
  void add_long(TimeNs begin, TimeNs end, TimeClass time_class);
  [[nodiscard]] static TimeNs earliest_of(const std::vector<LateActivity>& late, TimeNs now) noexcept;
  [[nodiscard]] Sweep begin_correction(const std::vector<LateActivity>& late, Interval interval) const;
  [[nodiscard]] static std::vector<Correction> next_part(Sweep& sweep, std::size_t most);

  TimeNs known_from_;
  TimeNs keep_from_ = kNever;
  std::size_t most_ = kFew;
  std::vector<Past> ring_;
  std::size_t next_ = 0;
  std::vector<LateActivity> long_;
};

}  // namespace mfu
