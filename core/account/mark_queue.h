// The moments at which instances open and end on a device, taken in order of time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "core/base/units.h"

namespace mfu {

struct Instance;

struct Mark {
  TimeNs at;
  std::uint64_t order;  ///< of those at the same moment
  Instance* instance;
  bool is_end;
  bool operator>(const Mark& o) const noexcept { return at != o.at ? at > o.at : order > o.order; }
};

/// A priority queue for what nearly always comes in order: that waits in a row, in which nothing is compared or moved.
/// Only the rest goes to a heap. A host that runs ahead of its GPU leaves 100,000 marks, on each device, and a heap of
/// those would be searched in memory that no cache holds.
class MarkQueue {
 public:
  void push(const Mark& mark) {
    if (row_.empty() || mark > row_.back())
      row_.push_back(mark);
    else
      heap_.push(mark);
  }
  [[nodiscard]] bool empty() const noexcept { return row_.empty() && heap_.empty(); }
  [[nodiscard]] const Mark& top() const noexcept { return heap_is_first() ? heap_.top() : row_.front(); }
  void pop() {
    if (heap_is_first())
      heap_.pop();
    else
      row_.pop_front();
  }

 private:
  [[nodiscard]] bool heap_is_first() const noexcept {
    return row_.empty() || (!heap_.empty() && row_.front() > heap_.top());
  }

  std::deque<Mark> row_;
  std::priority_queue<Mark, std::vector<Mark>, std::greater<>> heap_;
};

}  // namespace mfu
