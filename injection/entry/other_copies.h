// Other copies of this library in the same process: one of them does the work, the others hand their calls to it.
#pragma once

namespace mfu {

/// Address of `symbol` in the copy of this library that was loaded first; nullptr when that is this one.
/// [any thread] cold. The copy is found by its file name, which holds `mfuinject`.
[[nodiscard]] void* find_in_leading_copy(const char* symbol) noexcept;

template <typename Function>
[[nodiscard]] Function* in_leading_copy(const char* symbol) noexcept {
  return reinterpret_cast<Function*>(find_in_leading_copy(symbol));
}

}  // namespace mfu
