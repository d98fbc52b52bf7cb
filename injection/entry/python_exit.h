// Python processes that end by os._exit, as the children of multiprocessing do that were forked (vLLM's engine is one):
// no exit handler runs in them.
#pragma once

namespace mfu {

/// [starting thread] From now on `before` runs when the interpreter of this process calls _exit; once, on the calling
/// thread. Only the interpreter's own calls are seen: a slot in libpython or in an executable named python*. Nothing is
/// changed in any other process. Allocates nothing.
void call_before_python_exits(void (*before)() noexcept) noexcept;

}  // namespace mfu
