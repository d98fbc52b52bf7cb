// A second shared object with NVTX state of its own, as every module that includes the headers has.
#include <nvtx3/nvToolsExt.h>

#define EXPORT extern "C" [[gnu::visibility("default")]]

EXPORT void dso_push(const char* text) { nvtxRangePushA(text); }
EXPORT void dso_pop() { nvtxRangePop(); }
EXPORT void dso_mark(const char* text) { nvtxMarkA(text); }
