#include "cuda/cupti_api.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/base/environment.h"
#include "cuda/cupti_versions.h"
#include "cuda/device.h"
#include "cuda/overflow_guard.h"

namespace mfu {
namespace {

constexpr std::uint32_t kOldestVersion = 14;  // 11.1: graphId in kernel records
// 12.5. An older system copy that is mapped before `import torch` would satisfy torch's own NEEDED entry by SONAME and
// make the import fail on the symbols that came later (pytorch/pytorch#157381).
constexpr std::uint32_t kSafeForPython = 23;

std::string_view base_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string directory(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? "." : path.substr(0, slash));
}

/// `libx.so.13.0.1` > 13; 0 without a number.
int major_of(std::string_view path) {
  const std::string_view base = base_name(path);
  const std::size_t at = base.find(".so.");
  return at == std::string_view::npos ? 0 : std::atoi(std::string(base.substr(at + 4)).c_str());
}

std::string real_path(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  std::string result = real != nullptr ? real : path;
  std::free(real);
  return result;
}

struct Mapped {
  std::vector<std::string> cupti;
  std::string cudart;
  std::string libpython;
};

Mapped mapped_libraries() {
  Mapped found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        auto& mapped = *static_cast<Mapped*>(out);
        const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
        const std::string_view base = base_name(path);
        if (base.starts_with("libcupti.so")) mapped.cupti.emplace_back(path);
        if (base.starts_with("libcudart.so") || base.starts_with("libcudart-")) mapped.cudart = path;
        if (base.starts_with("libpython")) mapped.libpython = path;
        return 0;
      },
      &found);
  return found;
}

void add_existing(std::vector<CuptiCandidate>& to, const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) return;
  // /usr/local/cuda has the same file under two names.
  const std::string real = real_path(path);
  for (const CuptiCandidate& c : to)
    if (c.path == path || real_path(c.path) == real) return;
  to.push_back({path, false});
}

void add_matching(std::vector<CuptiCandidate>& to, const std::string& pattern) {
  ::glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = found.gl_pathc; i-- > 0;) add_existing(to, found.gl_pathv[i]);  // the highest version first
  ::globfree(&found);
}

/// The wheels of an interpreter keep CUDA 12 under nvidia/cuda_cupti and CUDA 13 under nvidia/cu13.
void add_site_packages(std::vector<CuptiCandidate>& to, const std::string& site) {
  add_matching(to, site + "/nvidia/cu1[3-9]/lib/libcupti.so.*");
  add_matching(to, site + "/nvidia/cuda_cupti/lib/libcupti.so.*");
}

bool is_python(const Mapped& mapped) {
  return !mapped.libpython.empty() || base_name(real_path("/proc/self/exe")).starts_with("python");
}

void add_python_wheels(std::vector<CuptiCandidate>& to, const Mapped& mapped, const std::string& interpreter) {
  const EnvironmentCopy environment;
  std::vector<std::string> prefixes;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME"})
    if (const char* prefix = environment.find(variable); prefix != nullptr && *prefix != '\0')
      prefixes.emplace_back(prefix);
  if (!interpreter.empty()) prefixes.push_back(directory(directory(interpreter)));  // a link in a virtual environment
  prefixes.push_back(directory(directory(real_path(interpreter.empty() ? "/proc/self/exe" : interpreter))));
  if (!mapped.libpython.empty()) prefixes.push_back(directory(directory(mapped.libpython)));
  for (const std::string& prefix : prefixes) {
    add_site_packages(to, prefix + "/lib/python3*/site-packages");
    add_site_packages(to, prefix + "/lib/python3*/dist-packages");
    add_site_packages(to, prefix + "/local/lib/python3*/dist-packages");
  }
  if (const char* home = environment.find("HOME"); home != nullptr)
    add_site_packages(to, std::string(home) + "/.local/lib/python3*/site-packages");
}

/// Facts about the open library, without a call.
CuptiTraits traits_of(void* handle, const CuptiCandidate& candidate) {
  CuptiTraits traits;
  traits.host_mapped = candidate.host_mapped;
  traits.is_13_2 = ::dlsym(handle, "cuptiActivityEnable_v2") != nullptr &&
                   ::dlsym(handle, "cuptiActivityGetNextRecord_v2") == nullptr &&
                   ::dlsym(handle, "cuptiIsTracingSessionRunning") == nullptr;
  // Wheels and toolkits name the file after the CUDA version, or after its year: only the former is of use here.
  const int major = major_of(candidate.path);
  if (major >= 11 && major < 100) traits.cuda_major = major;
  return traits;
}

template <typename F>
bool resolve(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(handle, name));
  return function != nullptr;
}

/// Looks up the functions of a libcupti. \return the name of a required function that it lacks; nullptr: none
const char* resolve_all(void* handle, CuptiApi& api) {
  const char* missing = nullptr;
  const auto require = [&](const char* name, auto& function) {
    if (!resolve(handle, name, function) && missing == nullptr) missing = name;
  };
  require("cuptiGetVersion", api.get_version);
  require("cuptiSubscribe", api.subscribe);
  require("cuptiEnableCallback", api.enable_callback);
  require("cuptiActivityRegisterCallbacks", api.register_callbacks);
  require("cuptiActivityEnable", api.activity_enable);
  require("cuptiActivityFlushAll", api.flush_all);
  require("cuptiActivityGetNextRecord", api.get_next_record);
  require("cuptiActivityGetNumDroppedRecords", api.get_dropped);
  resolve(handle, "cuptiUnsubscribe", api.unsubscribe);
  resolve(handle, "cuptiGetTimestamp", api.get_timestamp);
  resolve(handle, "cuptiSetThreadIdType", api.set_thread_id_type);
  resolve(handle, "cuptiActivitySetAttribute", api.set_attribute);
  resolve(handle, "cuptiActivityGetAttribute", api.get_attribute);
  resolve(handle, "cuptiGetContextId", api.get_context_id);
  resolve(handle, "cuptiGetGraphNodeId", api.get_graph_node_id);
  resolve(handle, "cuptiGetDeviceId", api.get_device_id);
  resolve(handle, "cuptiActivityEnableDriverApi", api.enable_driver_api);
  resolve(handle, "cuptiActivityEnableRuntimeApi", api.enable_runtime_api);
  resolve(handle, "cuptiSubscribe_v2", api.subscribe_v2);
  resolve(handle, "cuptiActivityRegisterCallbacks_v2", api.register_callbacks_v2);
  resolve(handle, "cuptiActivityEnable_v2", api.activity_enable_v2);
  resolve(handle, "cuptiActivityGetNextRecord_v2", api.get_next_record_v2);
  resolve(handle, "cuptiActivityGetNumDroppedRecords_v2", api.get_dropped_v2);
  resolve(handle, "cuptiGetTimestamp_v2", api.get_timestamp_v2);
  return missing;
}

/// The first call into a libcupti that may be called. \return why it has no version
Result<void> ask_version(CuptiApi& api, const CuptiTraits& traits, int driver, CuptiOpening& opening) {
  CUptiResult result = CUPTI_ERROR_UNKNOWN;
  // 13.2 may find no way to initialise though the driver is new enough. Then its first call never comes back.
  const auto ask = [&] { result = api.get_version(&api.version); };
  if (traits.is_13_2) {
    switch (call_guarded(ask)) {
      case GuardedCall::kReturned:
        break;
      case GuardedCall::kOverflowed:
        opening = CuptiOpening::kNoDriver;
        return Error{api.path + ": is CUPTI 13.2, and it overflowed its stack: it cannot initialise with this driver"};
      case GuardedCall::kNotCalled:
        return Error{
            api.path +
            ": is CUPTI 13.2, which can overflow its stack, and a stack of its own (2 MiB) is not to be had: it was "
            "not called"};
    }
  }
  if (!traits.is_13_2) ask();
  if (result != CUPTI_SUCCESS) {
    // From 13.3 on even this call fails where CUPTI cannot initialise.
    const bool unfit = result == CUPTI_ERROR_NOT_INITIALIZED || result == CUPTI_ERROR_UNKNOWN;
    if (unfit) opening = CuptiOpening::kNoDriver;
    return Error{api.path + ": cuptiGetVersion failed with error " + std::to_string(static_cast<int>(result)) +
                 (unfit && driver != 0 ? " (the driver is for CUDA " + std::to_string(driver / 1000) + "." +
                                             std::to_string(driver % 1000 / 10) + ")"
                                       : "")};
  }
  return {};
}

}  // namespace

std::string cupti_version_text(std::uint32_t version) {
  static constexpr struct {
    std::uint32_t number;
    const char* text;
  } kNamed[] = {{13, "11.0"},      {14, "11.1"}, {15, "11.2"}, {16, "11.5"}, {17, "11.6"},
                {18, "11.8-12.1"}, {19, "12.0"}, {20, "12.2"}, {21, "12.3"}, {22, "12.4"},
                {23, "12.5"},      {24, "12.6"}, {26, "12.8"}, {27, "12.9"}, {28, "12.9.1"}};
  for (const auto& named : kNamed)
    if (named.number == version) return named.text;
  if (version < 100000) return "API " + std::to_string(version);
  std::string text = std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
  if (version % 100 != 0) text += "." + std::to_string(version % 100);
  return text;
}

std::vector<CuptiCandidate> cupti_candidates(std::string_view override_path, const std::string& interpreter) {
  std::vector<CuptiCandidate> found;
  if (!override_path.empty()) {
    found.push_back({std::string(override_path), false});
    return found;
  }
  const Mapped mapped = mapped_libraries();
  if (!mapped.cupti.empty()) {
    // Of several take the one of the CUDA runtime in use; nothing else may be opened beside them.
    const int runtime = major_of(mapped.cudart);
    const auto fitting = std::find_if(mapped.cupti.begin(), mapped.cupti.end(),
                                      [runtime](const std::string& p) { return major_of(p) == runtime; });
    found.push_back({fitting != mapped.cupti.end() ? *fitting : mapped.cupti.front(), true});
    return found;
  }
  if (!mapped.cudart.empty() && mapped.cudart.find('/') != std::string::npos) {
    const std::string lib = directory(mapped.cudart);
    const int major = major_of(mapped.cudart);
    const std::string name = "/libcupti.so." + (major > 0 ? std::to_string(major) : std::string("*"));
    add_matching(found, directory(directory(lib)) + "/cuda_cupti/lib" + name + "*");
    add_matching(found, lib + name + "*");
    add_matching(found, directory(lib) + "/extras/CUPTI/lib64" + name + "*");
  }
  const bool python = !interpreter.empty() || is_python(mapped);
  if (python) add_python_wheels(found, mapped, interpreter);
  if (python && !found.empty()) return found;  // a system copy beside a wheel's is how imports break
  for (const char* name :
       {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so.11.7", "libcupti.so.11.6",
        "libcupti.so.11.5", "libcupti.so.11.4", "libcupti.so.11.3", "libcupti.so.11.2", "libcupti.so.11.1"})
    found.push_back({name, false});
  add_existing(found, "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so");
  add_existing(found, "/usr/local/cuda/lib64/libcupti.so");
  return found;
}

Result<CuptiApi> open_cupti(const CuptiCandidate& candidate, CuptiOpening* how) {
  CuptiOpening unasked;
  CuptiOpening& opening = how != nullptr ? *how : unasked;
  opening = CuptiOpening::kUnusable;
  void* handle = ::dlopen(candidate.path.c_str(), RTLD_NOW | RTLD_LOCAL | (candidate.host_mapped ? RTLD_NOLOAD : 0));
  if (handle == nullptr) {
    const char* why = ::dlerror();
    if (why != nullptr && std::strstr(why, "No such file or directory") != nullptr) opening = CuptiOpening::kAbsent;
    return Error{candidate.path + ": " + (why != nullptr ? why : "cannot be opened")};
  }
  CuptiApi api;
  api.path = candidate.path;
  api.host_mapped = candidate.host_mapped;
  if (const char* missing = resolve_all(handle, api); missing != nullptr)
    return Error{candidate.path + ": has no " + missing};
  // The handle is never closed: records and callbacks may come until the process is gone.
  const int driver = mapped_driver_version();
  const CuptiTraits traits = traits_of(handle, candidate);
  if (const std::string why = unfit_cupti(traits, driver); !why.empty()) {
    opening = CuptiOpening::kNoDriver;
    return Error{candidate.path + ": " + why};
  }
  if (const Result<void> asked = ask_version(api, traits, driver, opening); !asked) return asked.error();
  if (api.version < kOldestVersion)
    return Error{candidate.path + ": is CUPTI " + cupti_version_text(api.version) + ", expected 11.1 or newer"};
  if (!candidate.host_mapped && candidate.path.find('/') == std::string::npos && api.version < kSafeForPython &&
      is_python(mapped_libraries())) {
    ::dlclose(handle);  // nothing but its version was asked for: it may go, and must, or the import would meet it
    return Error{candidate.path + ": is CUPTI " + cupti_version_text(api.version) +
                 ", older than 12.5, which a later `import torch` could fail on"};
  }
  if (candidate.path.find('/') == std::string::npos) {
    Dl_info where{};
    if (::dladdr(reinterpret_cast<void*>(api.get_version), &where) != 0 && where.dli_fname != nullptr)
      api.path = where.dli_fname;
  }
  opening = CuptiOpening::kOpen;
  return api;
}

}  // namespace mfu
