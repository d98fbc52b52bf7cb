#include "injection/entry/foreign_tools.h"

#include <link.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/base/file_start.h"

namespace mfu {
namespace {

struct Tool {
  std::string_view library;  ///< a part of the file's name
  const char* name;
  bool debugger;  ///< the driver may load the library by itself (for GPU core dumps): only with the debugger attached
};

// Source: the files that the products install. Nsight Systems 2024-2025 libToolsInjection64.so; compute-sanitizer
// libsanitizer-collection.so and libTreeLauncherTargetInjection.so; Nsight Compute the latter,
// libInterceptorInjectionTarget.so and libcuda-injection.so; the driver libcudadebugger.so.
constexpr Tool kTools[] = {
    {"libToolsInjection64", "Nsight Systems", false},
    {"libsanitizer-collection", "compute-sanitizer", false},
    {"libcuda-injection.so", "Nsight Compute", false},
    {"libInterceptorInjectionTarget", "Nsight Compute or compute-sanitizer", false},
    {"libTreeLauncherTargetInjection", "Nsight Compute or compute-sanitizer", false},
    {"libcudadebugger", "cuda-gdb", true},
};

/// Whether the process that traces this one is a cuda-gdb.
bool traced_by_cuda_gdb() noexcept {
  constexpr std::string_view kKey = "\nTracerPid:";  // within the first 200 bytes
  std::array<char, 512> text;
  const std::string_view status = file_start("/proc/self/status", text);
  const std::size_t at = status.find(kKey);
  if (at == std::string_view::npos) return false;
  const std::string_view value = status.substr(at + kKey.size());
  char number[24] = {};
  value.substr(0, value.find('\n')).copy(number, sizeof number - 1);
  const long tracer = std::strtol(number, nullptr, 10);
  if (tracer == 0) return false;
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%ld/comm", tracer);
  return file_start(path, text).find("cuda-gdb") != std::string_view::npos;
}

}  // namespace

std::string foreign_tool() {
  const Tool* found = nullptr;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
        const std::string_view file = path.substr(path.rfind('/') + 1);
        const Tool*& tool = *static_cast<const Tool**>(out);
        for (const Tool& t : kTools)
          if (tool == nullptr && file.find(t.library) != std::string_view::npos) tool = &t;
        return 0;
      },
      &found);
  if (found == nullptr || (found->debugger && !traced_by_cuda_gdb())) return "";
  return found->name;
}

}  // namespace mfu
