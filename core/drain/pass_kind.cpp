#include "core/drain/pass_kind.h"

namespace mfu {

StepKind kind_of_pass(const SeenShape& seen, StepKind by_names) noexcept {
  constexpr std::int64_t kMostTried = 16;  // tokens of a draft
  if (!seen.queries) return by_names;
  if (*seen.queries == 1) return StepKind::kDecode;
  if (by_names == StepKind::kDecode && *seen.queries <= kMostTried) return by_names;
  return StepKind::kPrefillOrMixed;
}

}  // namespace mfu
