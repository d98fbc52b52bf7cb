#include "core/base/shape.h"

namespace mfu {

void Shape::fill_from(const Shape& other) noexcept {
  for (const auto& [name, value] : kShapeKeys)
    if (!(this->*value)) this->*value = other.*value;
}

bool Shape::is_negative() const noexcept {
  return std::any_of(kShapeKeys.begin(), kShapeKeys.end(), [this](const ShapeKey& key) {
    const auto& value = this->*key.value;
    return value && *value < 0;
  });
}

Shape ShapeWords::to_shape() const noexcept {
  Shape shape;
  for (std::size_t key = 0; key < kCount; ++key)
    if (has(key)) shape.*kShapeKeys[key].value = value[key];
  return shape;
}

ShapeWords ShapeWords::from_shape(const Shape& shape) noexcept {
  ShapeWords words;
  for (std::size_t key = 0; key < kCount; ++key)
    if (const auto& given = shape.*kShapeKeys[key].value) words.set(key, *given);
  return words;
}

}  // namespace mfu
