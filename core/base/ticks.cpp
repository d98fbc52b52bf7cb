#include "core/base/ticks.h"

#include <algorithm>

namespace mfu {
namespace {

TimeNs interpolate(Ticks a_ticks, TimeNs a_ns, Ticks b_ticks, TimeNs b_ns, Ticks ticks) {
  const auto numerator = static_cast<__int128>(ticks - a_ticks) * (b_ns - a_ns);
  return a_ns + static_cast<TimeNs>(numerator / (b_ticks - a_ticks));
}

}  // namespace

bool TickClock::anchor(Ticks ticks, TimeNs ns) {
  bool steady = true;
  if (anchors_.size() >= 2 && ticks > anchors_.back().ticks) steady = std::llabs(to_ns(ticks) - ns) <= kNsPerSecond;
  if (!anchors_.empty() && ticks <= anchors_.back().ticks) return steady;
  if (!steady) anchors_.clear();  // a new base: the old slope says nothing about it
  anchors_.push_back({ticks, ns});
  if (anchors_.size() > kKept) anchors_.pop_front();
  return steady;
}

TimeNs TickClock::to_ns(Ticks ticks) const {
  if (identity_) return ticks;
  if (anchors_.empty()) return 0;
  if (anchors_.size() == 1) return anchors_.front().ns;
  auto above =
      std::upper_bound(anchors_.begin(), anchors_.end(), ticks, [](Ticks t, const Anchor& a) { return t < a.ticks; });
  if (above == anchors_.begin()) ++above;
  if (above == anchors_.end()) --above;
  const Anchor& b = *above;
  const Anchor& a = *(above - 1);
  return interpolate(a.ticks, a.ns, b.ticks, b.ns, ticks);
}

}  // namespace mfu
