// Calls that the host's modules make and that something must happen before.
#pragma once

namespace mfu {

/// cuptiActivityRegisterCallbacks: both arguments are functions.
using RegisterBuffers = int (*)(void (*requested)(), void (*completed)());

/// Another client of CUPTI in the process (Kineto, in torch.profiler) registers buffers.
/// [starting thread] From now on `before` runs on the calling thread before a module that was linked against CUPTI
/// calls cuptiActivityRegisterCallbacks. Modules that are loaded later, or look the function up, are not seen.
/// Allocates nothing. \param cupti the function itself, for slots that the linker has not filled in yet
void call_before_others_register(void (*before)() noexcept, RegisterBuffers cupti) noexcept;

/// Python processes that end by os._exit, as the children of multiprocessing do that were forked (vLLM's engine is
/// one), run no exit handler. [starting thread] From now on `before` runs when the interpreter of this process calls
/// _exit; once, on the calling thread. Only the interpreter's own calls are seen: a slot in libpython or in an
/// executable named python*. Nothing is changed in any other process. Allocates nothing.
void call_before_python_exits(void (*before)() noexcept) noexcept;

}  // namespace mfu
