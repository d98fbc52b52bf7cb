// What a line of the screen says.
#pragma once

#include <string>

#include "tools/top/glyphs.h"

namespace mfu {

inline std::string text_of(const ScreenLine& line) {
  std::string text;
  for (const Span& span : line) text += span.text;
  return text;
}

}  // namespace mfu
