// When the remembered launches are searched for a cycle.
#pragma once

#include <cstdint>

#include "core/detect/launch_history.h"

namespace mfu {

/// When to search, and how far back. A search costs tens of ns per launch looked at: what has been in vain for long is
/// tried seldom.
class SearchSchedule {
 public:
  explicit SearchSchedule(const LaunchHistory& history) : history_(history) { restart(); }

  void restart();
  /// How many launches to search now; 0: not now. `followed`: a cycle is being followed, and a longer one is looked
  /// for.
  [[nodiscard]] std::uint32_t window(bool followed, bool final);

 private:
  void notice_change();

  const LaunchHistory& history_;
  LaunchPosition next_small_ = 0, next_middle_ = 0, next_full_ = 0;
  LaunchPosition since_ = 0;
  bool quiet_ = false;  ///< no new name for long
};

}  // namespace mfu
