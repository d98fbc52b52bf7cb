// A client of the NVTX version 2 ABI, as libnvToolsExt.so.1 was: one object per process that holds the function tables
// and calls InitializeInjectionNvtx of the library that NVTX_INJECTION64_PATH names. Written against the published ABI.
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

#define EXPORT extern "C" [[gnu::visibility("default")]]

namespace {

using Pointer = void (*)();

// CORE module of version 2: 15 entries, ids from 1.
constexpr unsigned kCoreSize = 16, kCore2Size = 16;
Pointer core[kCoreSize], core2[kCore2Size];
Pointer* core_table[kCoreSize + 1];
Pointer* core2_table[kCore2Size + 1];

int get_table(int module, Pointer*** table, unsigned* size) {
  if (module == 1) {
    *table = core_table;
    *size = kCoreSize;
    return 1;
  }
  if (module == 5) {
    *table = core2_table;
    *size = kCore2Size;
    return 1;
  }
  return 0;
}

struct Callbacks {
  std::size_t struct_size;
  int (*get_module_function_table)(int module, Pointer*** table, unsigned* size);
};
struct VersionInfo {
  std::size_t struct_size;
  std::uint32_t version;
  std::uint32_t reserved0;
  void (*set_injection_version)(std::uint32_t);
};

void set_version(std::uint32_t) {}

const void* export_table(std::uint32_t id) {
  static const Callbacks callbacks{sizeof(Callbacks), get_table};
  static const VersionInfo info{sizeof(VersionInfo), 2, 0, set_version};
  if (id == 1) return &callbacks;
  if (id == 3) return &info;
  return nullptr;
}

void initialise() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (unsigned i = 0; i < kCoreSize; ++i) core_table[i] = &core[i];
    for (unsigned i = 0; i < kCore2Size; ++i) core2_table[i] = &core2[i];
    const char* path = std::getenv("NVTX_INJECTION64_PATH");
    if (path == nullptr) return;
    void* library = dlopen(path, RTLD_LAZY);
    if (library == nullptr) return;
    using Init = int (*)(const void* (*)(std::uint32_t));
    auto init = reinterpret_cast<Init>(dlsym(library, "InitializeInjectionNvtx"));
    if (init == nullptr || init(export_table) == 0) {
      std::memset(core, 0, sizeof core);
      std::memset(core2, 0, sizeof core2);
      dlclose(library);
    }
  });
}

template <typename F, typename... Args>
auto call(unsigned id, Args... args) -> decltype(F{}(args...)) {
  initialise();
  using R = decltype(F{}(args...));
  auto* f = reinterpret_cast<F>(core[id]);
  if (f == nullptr) return R(-2);
  return f(args...);
}

}  // namespace

EXPORT void v2_mark(const char* text) {
  initialise();
  if (core[2] != nullptr) reinterpret_cast<void (*)(const char*)>(core[2])(text);
}
EXPORT std::uint64_t v2_start(const char* text) { return call<std::uint64_t (*)(const char*)>(5, text); }
EXPORT void v2_end(std::uint64_t id) {
  initialise();
  if (core[7] != nullptr) reinterpret_cast<void (*)(std::uint64_t)>(core[7])(id);
}
EXPORT int v2_push(const char* text) { return call<int (*)(const char*)>(9, text); }
EXPORT int v2_push_wide(const wchar_t* text) { return call<int (*)(const wchar_t*)>(10, text); }
EXPORT int v2_push_payload(const char* text, std::uint64_t value) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = value;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text;
  return call<int (*)(const nvtxEventAttributes_t*)>(8, static_cast<const nvtxEventAttributes_t*>(&attributes));
}
EXPORT int v2_pop() {
  initialise();
  return core[11] == nullptr ? -2 : reinterpret_cast<int (*)()>(core[11])();
}
