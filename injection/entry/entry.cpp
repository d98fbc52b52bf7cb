// The functions that the CUDA driver and NVTX look up by name, and the constructor for LD_PRELOAD.
#include <sys/auxv.h>

#include <cstring>

#include "core/base/environment.h"
#include "cuda/nvtx_handler.h"
#include "injection/entry/guest.h"
#include "injection/entry/on_load.h"
#include "injection/guards/contain.h"
#include "injection/guards/own_thread.h"

#define MFU_EXPORT extern "C" __attribute__((visibility("default")))

/// Called by the CUDA driver inside cuInit(). Always 1: the driver need not know of our failures.
MFU_EXPORT int InitializeInjection() noexcept {
  const mfu::CancellationOff off;
  return mfu::contain(1, [] {
    if (mfu::host_switches().inert.load(std::memory_order_relaxed)) return 1;
    if (const auto lead = mfu::in_leading_copy<int()>("InitializeInjection")) return lead();
    mfu::Guest::start();
    return 1;
  });
}

/// Called by each NVTX v3 module at its first use. Always 1: 0 would unload us again.
MFU_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) noexcept {
  const mfu::CancellationOff off;
  if (const auto lead = mfu::in_leading_copy<int(NvtxGetExportTableFunc_t)>("InitializeInjectionNvtx2"))
    return lead(get_export_table);
  if (!mfu::host_switches().inert.load(std::memory_order_relaxed)) mfu::attach_nvtx(get_export_table);
  return 1;
}

/// The same for the NVTX v2 library.
MFU_EXPORT int InitializeInjectionNvtx(NvtxGetExportTableFunc_t get_export_table) noexcept {
  return InitializeInjectionNvtx2(get_export_table);
}

/// Called by NVTX 3.2 and newer for extension modules. Always 1: 0 means to clients that they are disabled.
MFU_EXPORT int InitializeInjectionNvtxExtension(void* module_info) noexcept {
  const mfu::CancellationOff off;
  if (const auto lead = mfu::in_leading_copy<int(void*)>("InitializeInjectionNvtxExtension")) return lead(module_info);
  if (!mfu::host_switches().inert.load(std::memory_order_relaxed)) mfu::attach_nvtx_extension(module_info);
  return 1;
}

MFU_EXPORT const char* mfuinject_version() noexcept { return MFU_VERSION; }

namespace {

/// Runs wherever the library is loaded, under LD_PRELOAD in every process of the tree: it only makes sure that CUDA
/// and NVTX will look us up. Constructors of the executable's own libraries ran already.
__attribute__((constructor)) void on_load() noexcept {
  // A setuid program or one with file capabilities has more rights than the one who set its environment, which would
  // say where files are made.
  const bool secure = ::getauxval(AT_SECURE) != 0;
  const bool off = mfu::contain(true, [] {
    const mfu::EnvironmentCopy environment;
    const char* disable = environment.find("MFU_DISABLE");
    return disable != nullptr && std::strcmp(disable, "1") == 0;
  });
  if (secure || off) {
    mfu::host_switches().inert.store(true, std::memory_order_relaxed);
    return;
  }
  mfu::remember_processors();
  mfu::contain(0, [] {
    const std::string path = mfu::own_path();
    mfu::publish_variable("CUDA_INJECTION64_PATH", path);
    mfu::publish_variable("NVTX_INJECTION64_PATH", path);
    mfu::set_on_early_nvtx([] { mfu::Guest::start_late(); });
    return 0;
  });
}

}  // namespace
