// Region, rule and shape of a range, from RegionRules for attribution.
#pragma once

#include "core/base/ids.h"
#include "core/base/shape.h"

namespace mfu {

/// The region that a range opens. The rule is found once per name (RuleCache), the shape is read at every push.
struct RegionOpening {
  RegionId region = RegionId::kNone;
  RuleId rule = RuleId::kNone;
  ShapeWords shape;
};

}  // namespace mfu
