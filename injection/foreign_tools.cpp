#include "injection/foreign_tools.h"

#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

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

/// The first bytes of a file of /proc. No stream of the standard library: those bring all of std::locale along.
class ProcText {
 public:
  explicit ProcText(const char* path) noexcept {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    const ::ssize_t got = ::read(file, text_.data(), text_.size());
    ::close(file);
    size_ = got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, 512> text_;
  std::size_t size_ = 0;
};

/// Whether the process that traces this one is a cuda-gdb.
bool traced_by_cuda_gdb() noexcept {
  constexpr std::string_view kKey = "\nTracerPid:";  // within the first 200 bytes
  const ProcText status("/proc/self/status");
  const std::size_t at = status.view().find(kKey);
  if (at == std::string_view::npos) return false;
  const std::string_view value = status.view().substr(at + kKey.size());
  char number[24] = {};
  value.substr(0, value.find('\n')).copy(number, sizeof number - 1);
  const long tracer = std::strtol(number, nullptr, 10);
  if (tracer == 0) return false;
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%ld/comm", tracer);
  return ProcText(path).view().find("cuda-gdb") != std::string_view::npos;
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
