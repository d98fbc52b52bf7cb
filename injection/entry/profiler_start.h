// Another client of CUPTI in the process (Kineto, in torch.profiler) that registers buffers of its own.
#pragma once

namespace mfu {

/// cuptiActivityRegisterCallbacks: both arguments are functions.
using RegisterBuffers = int (*)(void (*requested)(), void (*completed)());

/// [starting thread] From now on `before` runs on the calling thread before a module that was linked against CUPTI
/// calls cuptiActivityRegisterCallbacks. Modules that are loaded later, or look the function up, are not seen.
/// Allocates nothing. \param cupti the function itself, for slots that the linker has not filled in yet
void call_before_others_register(void (*before)() noexcept, RegisterBuffers cupti) noexcept;

}  // namespace mfu
