// A module that looks the library's functions up by itself, as XLA, cuDNN and CuPy do; its name says that it is one.
#include <dlfcn.h>

#include "tests/unit/blas/stubs/library.h"

#define LOOKER extern "C" __attribute__((visibility("default")))

LOOKER void* look_up(void* handle, const char* name) { return dlsym(handle, name); }
LOOKER void* look_next(const char* name) { return dlsym(RTLD_NEXT, name); }
/// In front of the library's own: what look_next finds depends on who asks.
LOOKER StubLog stub_log() { return {-1, -1}; }
