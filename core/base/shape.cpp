#include "core/base/shape.h"

namespace mfu {

bool Shape::is_negative() const noexcept {
  return std::any_of(kShapeKeys.begin(), kShapeKeys.end(), [this](const ShapeKey& key) {
    const auto& value = this->*key.value;
    return value && *value < 0;
  });
}

Shape ShapeWords::to_shape() const noexcept {
  Shape shape;
  for (std::uint32_t left = given; left != 0; left &= left - 1) {
    const auto key = static_cast<std::size_t>(std::countr_zero(left));
    shape.*kShapeKeys[key].value = value[key];
  }
  return shape;
}

}  // namespace mfu
