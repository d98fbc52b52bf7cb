// Who else profiles this process, and what is done about it; injection/README.md says how each is seen, and why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/units.h"

namespace mfu {

enum class OtherProfiler : std::uint8_t {
  kForeignTool,
  kMps,
  kSlotHolder,
  kShared,
  kOwnForms,
  kRegistering,
  kTaker,
  kTakerWithEnd,
  kWholeGraphs,
};

struct Coexistence {
  OtherProfiler who;
  const char* level;           ///< of the library from then on; `as before`: it stays
  bool takes_records = false;  ///< while it works it has CUPTI's records
  DurationNs gone_after = 0;   ///< silence after which it has finished and we register again; 0: never
};

inline constexpr Coexistence kCoexistence[] = {
    {OtherProfiler::kForeignTool, "inert", true},
    {OtherProfiler::kMps, "ranges"},
    {OtherProfiler::kSlotHolder, "ranges", true},
    {OtherProfiler::kShared, "share"},
    {OtherProfiler::kOwnForms, "full"},
    {OtherProfiler::kRegistering, "as before", true},
    {OtherProfiler::kTaker, "as before", true, 30 * kNsPerSecond},
    {OtherProfiler::kTakerWithEnd, "as before", true, 600 * kNsPerSecond},
    {OtherProfiler::kWholeGraphs, "as before"},
};

[[nodiscard]] constexpr const Coexistence& coexistence_with(OtherProfiler who) noexcept {
  return kCoexistence[static_cast<std::size_t>(who)];
}
static_assert([] {
  for (std::size_t i = 0; i < sizeof kCoexistence / sizeof *kCoexistence; ++i)
    if (kCoexistence[i].who != static_cast<OtherProfiler>(i)) return false;
  return true;
}());

}  // namespace mfu
