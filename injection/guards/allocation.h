// Memory of the library, where the machine has none left.
#pragma once

namespace mfu {

/// True from the first allocation on that the system refused. The library is inert then.
[[nodiscard]] bool memory_was_refused() noexcept;

}  // namespace mfu
