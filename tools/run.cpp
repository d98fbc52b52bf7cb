// `mfu run`: the two injection variables and the MFU_* ones, then CMD in our place.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/library_path.h"

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

std::string new_run_dir() {
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
  if (!o.no_run_dir && (!o.run_dir.empty() || std::getenv("MFU_RUN_DIR") == nullptr)) {
    const std::string directory =
        std::filesystem::absolute(o.run_dir.empty() ? new_run_dir() : o.run_dir, error).string();
    if (directory.find('%') == std::string::npos) std::filesystem::create_directories(directory, error);
    if (error) {
      std::fprintf(stderr, "[mfu] run directory %s: %s: log lines only\n", directory.c_str(), error.message().c_str());
    } else {
      ::setenv("MFU_RUN_DIR", directory.c_str(), 1);
      std::fprintf(stderr, "[mfu] run directory %s\n", directory.c_str());
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

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = app.add_subcommand("run", "Run a program with the library in it: mfu run [options] [--] CMD...");
  sub->add_option("-c,--config", options->config,
                  "model: HF config.json, its folder, a model id, or an own config (MFU_MODEL_CONFIG)");
  sub->add_option("-d,--run-dir", options->run_dir, "where the run's lines go; default: mfu-runs/<time>-<pid>");
  sub->add_flag("--no-run-dir", options->no_run_dir, "log lines only");
  sub->add_option("-i,--interval", options->interval, "seconds per window; default: 10");
  sub->add_option("--log", options->log, "stderr, stdout, none or a file; default: stderr");
  sub->add_flag("--all-ranks", options->all_ranks, "every rank logs, not only rank 0");
  sub->add_option("--set", options->set, "overrides of the config: workload.batch=8,peak.dtype=fp8");
  sub->add_option("--peak-tflops", options->peak_tflops, "peak of the device in 1e12 FLOP/s");
  sub->add_option("--peak-gbps", options->peak_gbps, "memory bandwidth of the device in 1e9 B/s");
  sub->add_option("--profiler", options->profiler,
                  "own: hold CUPTI's one subscriber slot; share: leave it to torch.profiler")
      ->check(CLI::IsMember({"own", "share"}));
  sub->add_option("--cupti", options->cupti, "the libcupti to use");
  sub->footer(
      "Examples:\n  mfu run -c Qwen/Qwen3-8B python generate.py\n"
      "  mfu run -c config.json -i 5 torchrun --nproc-per-node 8 train.py\n"
      "Exit code: that of CMD; 126 when it cannot be run, 127 when it is not found.");
  sub->prefix_command();
  sub->callback([sub, options] {
    options->command = sub->remaining();
    if (!options->command.empty() && options->command.front() == "--") options->command.erase(options->command.begin());
    if (options->command.empty()) {
      std::fprintf(stderr, "mfu run: no command to run\n");
      throw CLI::RuntimeError(2);
    }
    throw CLI::RuntimeError(run(*options));  // only reached when it could not be run
  });
}

}  // namespace mfu
