// An NVTX client as a module of its own: NVTX attaches each module once, at its first call, so two copies of this one
// can be attached to two different injection libraries within one process.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

#define CLIENT extern "C" __attribute__((visibility("default")))

CLIENT void attach() {
  nvtxRangePushA("first");
  nvtxRangePop();
}

CLIENT void push_pop(const char* name, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    nvtxRangePushA(name);
    nvtxRangePop();
  }
}

/// A name with a number of its own each time, as a profiler's step counter has. Names are made before.
CLIENT void push_pop_names(const char* const* names, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    nvtxRangePushA(names[i]);
    nvtxRangePop();
  }
}

CLIENT void push_pop_registered(const char* name, int pairs) {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("bench");
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = nvtxDomainRegisterStringA(domain, name);
  for (int i = 0; i < pairs; ++i) {
    nvtxDomainRangePushEx(domain, &attributes);
    nvtxDomainRangePop(domain);
  }
}
