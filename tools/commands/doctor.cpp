// `mfu doctor` lists all that a measurement needs and whether it is here, each line with a remedy.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/line_file.h"
#include "core/base/number_text.h"
#include "core/base/say.h"
#include "core/config/config.h"
#include "core/peak/peak.h"
#include "cuda/cupti_api.h"
#include "cuda/device.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_words.h"
#include "tools/commands/library_path.h"
#include "tools/commands/output_check.h"
#include "tools/commands/program_loader.h"

extern char** environ;

namespace mfu {
namespace {

class Report {
 public:
  void good(const char* what, const std::string& text) { print("ok", what, text); }
  void note(const char* what, const std::string& text) { print("--", what, text); }
  /// Something is not as it was meant, and a measurement can be made all the same.
  void warn(const char* what, const std::string& text) {
    print("!!", what, text);
    ++warnings_;
  }
  void bad(const char* what, const std::string& text) {
    print("NO", what, text);
    ++problems_;
  }
  [[nodiscard]] int problems() const { return problems_; }
  [[nodiscard]] int warnings() const { return warnings_; }

 private:
  static void print(const char* mark, const char* what, const std::string& text) {
    say("[{}] {:<11} {}\n", mark, what, text);
  }
  int problems_ = 0, warnings_ = 0;
};

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Initialises CUDA in this process, without any injection library.
bool initialise_cuda(Report& report) {
  ::unsetenv("CUDA_INJECTION64_PATH");
  const int version = driver_version();
  if (version == 0) {
    const char* why = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr ? "it does not say its version"
                                                                                  : "libcuda.so.1 cannot be opened";
    report.bad("driver",
               std::string(why) + "; on a machine with a GPU install its driver, in a container pass the GPU through");
    return false;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "cuInit"));
  const int result = init != nullptr ? init(0) : -1;
  if (result != 0) {
    report.bad("driver", "CUDA " + cuda_version(version) + ", but " + init_error_text(result));
    return false;
  }
  report.good("driver", "CUDA " + cuda_version(version));
  return true;
}

void check_devices(Report& report, const Config& config) {
  std::uint32_t count = 0;
  for (;; ++count) {
    const auto identity = identify_device(count);
    if (!identity) break;
    const OperandDType operands = operand_dtype(config.peak.dtype, config.model ? config.model->dtype() : std::nullopt);
    const Peak peak = find_peak(identity->facts, operands.dtype, config.peak);
    const std::string label = "gpu " + std::to_string(count);
    std::string text = identity->facts.name + ", " + std::to_string(identity->facts.sm_count) + " SMs";
    if (!peak.flop_per_s) {
      report.bad(label.c_str(), text + ": peak unknown; set MFU_PEAK_TFLOPS and MFU_PEAK_GBPS");
      continue;
    }
    text += ": peak " + scaled_text(peak.flop_per_s, "FLOP/s") + " " + std::string(name(peak.dtype)) +
            (peak.sparse ? " sparse" : " dense");
    if (peak.bytes_per_s) text += ", " + scaled_text(peak.bytes_per_s, "B/s");
    report.good(label.c_str(), text + " (" + peak.source.substr(0, peak.source.find(';')) + ")");
  }
  if (count == 0) report.bad("gpu", "the driver shows no device; check CUDA_VISIBLE_DEVICES");
}

void on_nothing(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

/// As a Python process finds it, in the wheels of the environment that is active, then as any other does.
void check_cupti(Report& report, const Config& config) {
  std::string tried;
  const std::string python = in_path("python3");
  std::vector<CuptiCandidate> candidates;
  if (python.find('/') != std::string::npos) candidates = cupti_candidates(config.cupti_path, python);
  for (CuptiCandidate& other : cupti_candidates(config.cupti_path)) candidates.push_back(std::move(other));
  for (const CuptiCandidate& candidate : candidates) {
    const auto api = open_cupti(candidate);
    if (!api) {
      if (candidate.path.find('/') != std::string::npos || tried.empty())
        tried += (tried.empty() ? "" : "; ") + api.error().message;
      continue;
    }
    const std::string text = "CUPTI " + cupti_version_text(api->version) + " at " + api->path;
    CUpti_SubscriberHandle subscriber = nullptr;
    const int result = static_cast<int>(api->subscribe(&subscriber, on_nothing, nullptr));
    if (result == 0) {
      if (api->unsubscribe != nullptr) (void)api->unsubscribe(subscriber);
      const bool of_python = config.cupti_path.empty() && api->path.find("-packages/") != std::string::npos;
      report.good("cupti", text + (of_python ? ", for Python programs; others need it in MFU_CUPTI" : ""));
      return;
    }
    tried += (tried.empty() ? "" : "; ") + text + ": cuptiSubscribe answers " + std::to_string(result) +
             (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? " (another profiler holds it)"
              : result == CUPTI_ERROR_NOT_INITIALIZED                  ? " (it is newer than the driver)"
              : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES          ? " (no right to profile)"
                                                                       : "");
  }
  report.bad("cupti", tried + "; pip install nvidia-cuda-cupti (or -cu12 for CUDA 12), or set MFU_CUPTI");
}

void check_variable(Report& report, const char* variable, const std::string& library, bool required) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') {
    if (required)
      report.note(variable, "not set; `mfu run` sets it, else export " + std::string(variable) + "=" + library);
    return;
  }
  if (library == value || std::strstr(value, "libmfuinject.so") != nullptr)
    report.good(variable, value);
  else
    report.bad(variable, std::string(value) + " is not this library: another tool has it");
}

/// Settings outside of the program that may change how CUPTI and the driver behave.
void check_surroundings(Report& report) {
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::string_view(*variable).starts_with("CUPTI_"))
      report.note("cupti", std::string(*variable) + " is set: CUPTI reads it, and may record otherwise with it");
  const char* libraries = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(libraries != nullptr ? libraries : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (folder.find("/stubs") != std::string::npos && ::access((folder + "/libcuda.so").c_str(), F_OK) == 0)
      report.warn("driver",
                  folder + " is in LD_LIBRARY_PATH: CUPTI may open its libcuda.so, which is for linking only");
  std::ifstream parameters("/proc/driver/nvidia/params");
  for (std::string line; std::getline(parameters, line);)
    if (line == "RmProfilingAdminOnly: 1")
      report.note("driver", line + ": hardware counters (ncu) are for root alone; the times of kernels are not");
}

/// The config in words, and every line about it that a run would print.
void check_config(Report& report, const Config& config) {
  if (config.disabled) report.warn("config", "MFU_DISABLE=1: the library is switched off");
  bool read = true;
  for (const auto& [line, stands_in_the_way] : config_mistakes(config)) {
    if (stands_in_the_way)
      report.bad("config", line);
    else
      report.warn("config", line);
    read = read && !stands_in_the_way;
  }
  for (const std::string& line : config_remarks(config)) report.warn("config", line);
  for (const std::string& line : unknown_variables(config)) report.warn("config", line);
  if (config.model)
    report.good("config", config.model_source + ": " + config_words(config));
  else if (read)
    report.note("config", "no model: set MFU_MODEL_CONFIG, else there are times but no MFU");
}

/// Every place that a run would write to, by writing there.
void check_outputs(Report& report, const Config& config) {
  const auto check = [&report](const char* variable, const std::string& place, const Result<void>& done) {
    if (place.empty()) return;
    if (done)
      report.good(variable, place);
    else
      report.bad(variable, done.error().message);
  };
  if (LineFile(config.log.target).kind() == LineFile::Kind::kFile)
    check("MFU_LOG", config.log.target, check_output_file(config.log.target));
  check("MFU_RUN_DIR", config.run_dir, check_output_folder(config.run_dir));
  check("MFU_TRACE", config.trace, check_output_file(config.trace));
  check("MFU_TB_DIR", config.tb_dir, check_output_folder(config.tb_dir));
}

int doctor() {
  Report report;
  // Before CUDA starts in this process: the variables as a program would find them.
  const auto library = library_path();
  if (library)
    report.good("library", *library);
  else
    report.bad("library", library.error().message);
  check_variable(report, "CUDA_INJECTION64_PATH", library ? *library : "libmfuinject.so", true);
  check_variable(report, "NVTX_INJECTION64_PATH", library ? *library : "libmfuinject.so", true);
  if (const char* off = std::getenv("NVTX_DISABLE"); off != nullptr)
    report.bad("nvtx", std::string("NVTX_DISABLE=") + off + ": the program emits no ranges");
  const Config config = load_config([](const char* n) -> const char* { return ::getenv(n); }, environ);
  check_config(report, config);
  check_outputs(report, config);
  check_surroundings(report);
  if (initialise_cuda(report)) {
    check_devices(report, config);
    check_cupti(report, config);
  }
  const int count = report.warnings();
  const std::string warnings = count == 0 ? "" : fmt::format("; {} warning{}", count, count == 1 ? "" : "s");
  if (report.problems() == 0)
    say("everything that a measurement needs is here{}\n", warnings);
  else
    say("{} of these stand{} in the way of a measurement{}\n", report.problems(), report.problems() == 1 ? "s" : "",
        warnings);
  return report.problems() == 0 ? 0 : 1;
}

}  // namespace

void add_doctor(CommandLine& line) {
  Command sub = line.command(
      "doctor", "Say what works here and what does not: driver, GPU and its peaks, CUPTI, NVTX, config, outputs");
  sub.footer({"mfu doctor", "MFU_MODEL_CONFIG=config.json mfu doctor"},
             "0 when a measurement can be made here; 1 when something stands in its way");
  sub.action([] { return doctor(); });
}

}  // namespace mfu
