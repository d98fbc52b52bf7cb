// One import slot of a module: its target, and another function in its place.
#pragma once

#include <cstdint>

#include "cuda/blas/loaded_module.h"

namespace mfu {

/// The function that the slot leads to; nullptr: the linker fills it in at the first call through it.
[[nodiscard]] void* bound_function(const LoadedModule& module, std::uintptr_t slot) noexcept;

/// Puts `function` into the slot, by one store, while other threads may call through it. False: it cannot be written.
bool put_function(const LoadedModule& module, std::uintptr_t slot, void* function) noexcept;

}  // namespace mfu
