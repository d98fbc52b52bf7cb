#include "tools/demo/workload.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/say.h"
#include "tools/commands/child.h"
#include "tools/commands/commands.h"
#include "tools/commands/library_path.h"
#include "tools/commands/output_check.h"
#include "tools/commands/temporary_folder.h"
#include "tools/run_dir/find_run_dir.h"

namespace mfu {

// The simulated libraries and the config, which the binary carries.
std::string_view embedded_libcuda() noexcept;
std::string_view embedded_libcupti() noexcept;
std::string_view embedded_demo_config() noexcept;

namespace {

/// How the demo is asked to run, beside what its workload does.
struct DemoRun {
  DemoOptions workload;
  bool simulated = false;      ///< even where there is a GPU
  bool workload_only = false;  ///< the child: environment is set, run the workload
  std::string run_dir;
  double interval_s = 2;
};

/// Is there a driver with at least one device? Asked in a child process: a driver that was initialised here would be
/// not inherited, but its threads and its injection library would stay in this process.
bool has_real_gpu() {
  const pid_t pid = fork();
  if (pid == 0) {
    unsetenv("CUDA_INJECTION64_PATH");
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) _exit(1);
    auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    auto* count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
    int n = 0;
    _exit(init != nullptr && count != nullptr && init(0) == 0 && count(&n) == 0 && n > 0 ? 0 : 1);
  }
  int status = 1;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// For an option: the mistake in its text, or nothing.
std::string multiple_of_64(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  return *end == '\0' && value > 0 && value % 64 == 0 ? "" : "expected a multiple of 64, got \"" + text + "\"";
}

void set_default(const char* name, const std::string& value) { setenv(name, value.c_str(), /*overwrite=*/0); }

/// The kernels do not say how long the sequences are. How many there are is read from the kernels.
std::string config_without_ranges(const DemoOptions& o) {
  const auto mean_context = o.prompt_len + (o.new_tokens - 1) / 2;
  return fmt::format(R"({{"model": "config.json",
 "workload": {{"phase": "train", "seq_len": {}}},
 "regions": [{{"region": "prefill_or_mixed", "seq_len": {}}}, {{"region": "decode", "context": {}}}]}}
)",
                     o.train_seq_len, o.prompt_len, mean_context);
}

int run_demo(const DemoRun& run) {
  if (run.workload_only) return run_demo_workload(run.workload);
  if (!run.run_dir.empty())
    if (const auto place = check_output_folder(run.run_dir); !place)
      return say_error("demo", "--run-dir " + place.error().message, kUsageError);
  const Result<std::string> library = library_path();
  if (!library) return say_error("demo", library.error().message);
  const TemporaryFolder directory("mfu-demo");
  if (directory.path().empty())
    return say_error("demo", std::string("cannot make a directory for its files: ") + std::strerror(errno));
  const std::string folder = directory.path() + "/";
  bool written = true;
  const auto write = [&](const char* name, std::string_view content) {
    std::ofstream out(folder + name, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    written = written && out.good();
  };
  write("config.json", embedded_demo_config());
  const char* const config = run.workload.no_ranges ? "shapes.json" : "config.json";
  if (run.workload.no_ranges) write(config, config_without_ranges(run.workload));
  const bool simulated = run.simulated || !has_real_gpu();
  if (simulated) {
    write("libcuda.so.1", embedded_libcuda());
    write("libcupti.so.13", embedded_libcupti());
    const char* before = std::getenv("LD_LIBRARY_PATH");
    const std::string path = directory.path() + (before != nullptr && *before != '\0' ? std::string(":") + before : "");
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
    set_default("MFU_CUPTI", folder + "libcupti.so.13");
  }
  if (!written) return say_error("demo", "cannot write to " + directory.path());
  setenv("CUDA_INJECTION64_PATH", library->c_str(), 1);
  setenv("NVTX_INJECTION64_PATH", library->c_str(), 1);
  set_default("MFU_MODEL_CONFIG", folder + config);
  set_default("MFU_INTERVAL", fmt::format("{:g}", run.interval_s));
  // Like `mfu run`: where nothing is named and this folder can be written, below ./mfu-runs.
  std::string run_dir = run.run_dir;
  if (run_dir.empty() && std::getenv("MFU_RUN_DIR") == nullptr && check_output_folder("mfu-runs"))
    run_dir = new_run_dir();
  if (!run_dir.empty()) setenv("MFU_RUN_DIR", run_dir.c_str(), 1);
  say("mfu demo: GPT-2 124M, {:g} s of training and serving on {}\n", run.workload.seconds,
      simulated ? "the Simulated GPU: every figure below is made up by its clock, none is a measurement" : "the GPU");
  std::fflush(stdout);
  const DemoOptions& o = run.workload;
  std::vector<std::string> words{"demo", "--workload-only"};
  const std::pair<const char*, std::string> given[] = {{"--seconds", std::to_string(o.seconds)},
                                                       {"--train-batch", std::to_string(o.train_batch)},
                                                       {"--train-seq-len", std::to_string(o.train_seq_len)},
                                                       {"--serve-batch", std::to_string(o.serve_batch)},
                                                       {"--prompt-len", std::to_string(o.prompt_len)},
                                                       {"--new-tokens", std::to_string(o.new_tokens)}};
  for (const auto& [option, value] : given) words.insert(words.end(), {option, value});
  if (o.no_ranges) words.emplace_back("--no-ranges");
  const int code = run_again(std::move(words));
  if (code == 0 && !run_dir.empty()) say("next: mfu report {}\n", shell_word(run_dir));
  return code < 0 ? say_error("demo", "cannot start its program") : code;
}

}  // namespace

void add_demo(CommandLine& line) {
  const auto run = std::make_shared<DemoRun>();
  Command demo = line.command(
      "demo", "Show a small transformer's training and serving through the real library, on a GPU or a simulated one");
  demo.option("--seconds", run->workload.seconds, "how long it runs in all",
              {.between = kAboveZero, .shows_default = true});
  demo.flag("--no-ranges", run->workload.no_ranges, "emit no NVTX ranges");
  demo.flag("--simulated", run->simulated, "use the simulated GPU even where there is a real one");
  demo.option("--run-dir", run->run_dir, "where the run's files go; default: MFU_RUN_DIR, else mfu-runs/<time>-<pid>",
              {.type = "DIR"});
  demo.option("--interval", run->interval_s, "seconds per window", {.between = kAboveZero, .shows_default = true});
  demo.option("--train-batch", run->workload.train_batch, "sequences per training step",
              {.between = {1, 1 << 20}, .shows_default = true});
  demo.option("--train-seq-len", run->workload.train_seq_len, "tokens per training sequence",
              {.check = multiple_of_64, .shows_default = true});
  demo.option("--serve-batch", run->workload.serve_batch, "sequences served at once",
              {.between = {1, 16}, .shows_default = true});
  demo.option("--prompt-len", run->workload.prompt_len, "tokens per prompt",
              {.check = multiple_of_64, .shows_default = true});
  demo.option("--new-tokens", run->workload.new_tokens, "decode steps per prompt",
              {.between = {1, 1 << 20}, .shows_default = true});
  demo.flag("--workload-only", run->workload_only, "", {.hidden = true});
  demo.footer({"mfu demo", "mfu demo --simulated --seconds 6", "mfu demo --run-dir run --interval 1"},
              "0; 1 when it cannot be started, else that of the demonstrated program");
  demo.action([run] { return run_demo(*run); });
}

}  // namespace mfu
