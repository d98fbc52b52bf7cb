// `mfu run`: the two injection variables and the MFU_* ones, then CMD in our place.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "tools/commands/commands.h"
#include "tools/commands/library_path.h"

namespace mfu {

namespace {

constexpr int kCannotRun = 126;  // as a shell says it
constexpr int kNotFound = 127;

struct RunOptions {
  std::string config, run_dir, interval, log, set, peak_tflops, peak_gbps, profiler, cupti;
  bool no_run_dir = false, all_ranks = false;
  std::vector<std::string> command;
};

/// A variable that points elsewhere already belongs to another tool, which then keeps it.
void inject(const char* variable, const std::string& library) {
  const char* held = std::getenv(variable);
  if (held != nullptr && *held != '\0' && library != held) {
    std::fprintf(stderr,
                 "[mfu] %s is set to %s: left as it is, so this part of the measurement is off; unset it to measure\n",
                 variable, held);
    return;
  }
  ::setenv(variable, library.c_str(), 1);
}

void set_if_given(const char* variable, const std::string& value) {
  if (!value.empty()) ::setenv(variable, value.c_str(), 1);
}

/// Number and start of the parent process, in the kernel's clock ticks: the same for all that it started, and for
/// nobody else until the next boot. Empty where /proc does not say.
std::string parent_process() {
  const std::string pid = std::to_string(::getppid());
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  // The second field is a name in brackets that may hold blanks; the start is the 20th after it.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string start;
  for (int i = 0; i < 20; ++i) fields >> start;
  return fields ? pid + "-" + start : "";
}

/// Where this process is one rank of several, each of which runs `mfu run` (as below srun or mpirun): a name that all
/// of them come to, so that one folder holds the job. Empty for a process that stands alone.
std::string job_name(const Config& launched) {
  if (launched.world_size <= 1) return "";
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (std::getenv("RANK") == nullptr && std::getenv("SLURM_PROCID") != nullptr) {
    // A batch script has a SLURM_PROCID too, but no step.
    if (variable("SLURM_JOB_ID").empty() || variable("SLURM_STEP_ID").empty()) return "";
    return "slurm-" + variable("SLURM_JOB_ID") + "." + variable("SLURM_STEP_ID");
  }
  if (std::string job = variable("PMIX_NAMESPACE"); !job.empty()) {
    std::replace(job.begin(), job.end(), '/', '_');
    return "mpi-" + job;
  }
  const std::string parent = parent_process();
  return parent.empty() ? "" : "ranks-of-" + parent;
}

std::string new_run_dir(const Config& launched) {
  if (const std::string job = job_name(launched); !job.empty()) return "mfu-runs/" + job;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 64> name{};
  std::strftime(name.data(), name.size(), "mfu-runs/%Y%m%d-%H%M%S", &local);
  return std::string(name.data()) + "-" + std::to_string(::getpid());
}

int run(const RunOptions& o) {
  const auto library = library_path();
  if (!library) {
    std::fprintf(stderr, "mfu run: %s\n", library.error().message.c_str());
    return kCannotRun;
  }
  inject("CUDA_INJECTION64_PATH", *library);
  inject("NVTX_INJECTION64_PATH", *library);
  std::error_code error;
  if (!o.config.empty()) {
    // A path is meant from here, not from wherever the program changes to; a model id is left as it is.
    const std::filesystem::path path = std::filesystem::absolute(o.config, error);
    ::setenv("MFU_MODEL_CONFIG", !error && std::filesystem::exists(path, error) ? path.c_str() : o.config.c_str(), 1);
  }
  set_if_given("MFU_INTERVAL", o.interval);
  set_if_given("MFU_LOG", o.log);
  set_if_given("MFU_SET", o.set);
  set_if_given("MFU_PEAK_TFLOPS", o.peak_tflops);
  set_if_given("MFU_PEAK_GBPS", o.peak_gbps);
  set_if_given("MFU_PROFILER", o.profiler);
  set_if_given("MFU_CUPTI", o.cupti);
  if (o.all_ranks) ::setenv("MFU_LOG_RANKS", "all", 1);
  // Which rank this is, if any; the config itself is the program's to read.
  const Config launched = load_config(
      [](const char* name) -> const char* { return std::strncmp(name, "MFU_", 4) == 0 ? nullptr : std::getenv(name); },
      nullptr);
  if (!o.no_run_dir && (!o.run_dir.empty() || std::getenv("MFU_RUN_DIR") == nullptr)) {
    const std::string directory =
        std::filesystem::absolute(o.run_dir.empty() ? new_run_dir(launched) : o.run_dir, error).string();
    if (directory.find('%') == std::string::npos) std::filesystem::create_directories(directory, error);
    if (error) {
      std::fprintf(stderr, "[mfu] run directory %s: %s: log lines only\n", directory.c_str(), error.message().c_str());
    } else {
      ::setenv("MFU_RUN_DIR", directory.c_str(), 1);
      if (launched.rank == 0) std::fprintf(stderr, "[mfu] run directory %s\n", directory.c_str());
    }
  }
  std::vector<char*> arguments;
  for (const std::string& word : o.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int why = errno;
  std::fprintf(stderr, "mfu run: %s: %s\n", arguments[0], std::strerror(why));
  return why == ENOENT ? kNotFound : kCannotRun;
}

/// Cuts the words that are the program's off the end of `arguments`. CLI11 would look for options of ours among them.
std::vector<std::string> take_program(const CLI::App& run, std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "run") return {};
  std::size_t at = 1;
  while (at < arguments.size()) {
    const std::string& word = arguments[at];
    if (word == "--" || word.size() < 2 || word.front() != '-') break;
    const CLI::Option* option = run.get_option_no_throw(word);  // `-c`, `--config`; not `-cX`, `--config=X`
    at += option != nullptr && option->get_items_expected_max() > 0 ? 2 : 1;
  }
  at = std::min(at, arguments.size());
  const bool marked = at < arguments.size() && arguments[at] == "--";
  std::vector<std::string> program(arguments.begin() + static_cast<std::ptrdiff_t>(at) + (marked ? 1 : 0),
                                   arguments.end());
  arguments.resize(at);
  return program;
}

}  // namespace

void add_run(CLI::App& app, std::vector<std::string>& arguments) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = app.add_subcommand("run", "Run a program with the library in it");
  sub->add_option("program", options->command, "the program, and all that follows is its own")->type_name("CMD");
  sub->add_option("-c,--config", options->config,
                  "model: HF config.json, its folder, a model id, or an own config (MFU_MODEL_CONFIG)")
      ->type_name("PATH");
  sub->add_option("-d,--run-dir", options->run_dir, "where the run's lines go; default: mfu-runs/<time>-<pid>")
      ->type_name("DIR");
  sub->add_flag("--no-run-dir", options->no_run_dir, "log lines only");
  sub->add_option("-i,--interval", options->interval, "seconds per window; default: 10")->type_name("SECONDS");
  sub->add_option("--log", options->log, "stderr, stdout, none or a file; default: stderr")->type_name("PATH");
  sub->add_flag("--all-ranks", options->all_ranks, "every rank logs, not only rank 0");
  sub->add_option("--set", options->set, "overrides of the config: workload.batch=8,peak.dtype=fp8")
      ->type_name("KEY=VALUE");
  sub->add_option("--peak-tflops", options->peak_tflops, "peak of the device in 1e12 FLOP/s")->type_name("NUMBER");
  sub->add_option("--peak-gbps", options->peak_gbps, "memory bandwidth of the device in 1e9 B/s")->type_name("NUMBER");
  sub->add_option("--profiler", options->profiler,
                  "own: hold CUPTI's one subscriber slot; share: leave it to torch.profiler")
      ->check(CLI::IsMember({"own", "share"}));
  sub->add_option("--cupti", options->cupti, "the libcupti to use")->type_name("PATH");
  sub->footer(help_footer({"mfu run -c Qwen/Qwen3-8B python generate.py",
                           "mfu run -c config.json -i 5 torchrun --nproc-per-node 8 train.py",
                           "srun mfu run -c config.json -d 'runs/%q{SLURM_JOB_ID}' -- python train.py"},
                          "that of CMD; 126 when it cannot be run, 127 when it is not found"));
  options->command = take_program(*sub, arguments);
  sub->callback([options] {
    if (options->command.empty()) {
      std::fprintf(stderr, "mfu run: no program to run; for example: mfu run python train.py\n");
      throw CLI::RuntimeError(kUsageError);
    }
    throw CLI::RuntimeError(run(*options));  // only reached when it could not be run
  });
}

}  // namespace mfu
