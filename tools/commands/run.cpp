// `mfu run`: checks what it was given, sets the two injection variables and the MFU_* ones, runs CMD, and says at its
// end where to look.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/file_start.h"
#include "core/base/line_file.h"
#include "core/base/say.h"
#include "core/config/config.h"
#include "core/config/host_command.h"
#include "core/config/launcher.h"
#include "tools/commands/child.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_words.h"
#include "tools/commands/library_path.h"
#include "tools/commands/output_check.h"
#include "tools/commands/program_loader.h"
#include "tools/commands/supervise.h"
#include "tools/report/escape.h"
#include "tools/report/outputs/table.h"
#include "tools/report/run_source.h"
#include "tools/run_dir/find_run_dir.h"
#include "tools/run_dir/run_file.h"
#include "tools/run_dir/run_processes.h"
#include "tools/trace/trace_input.h"

extern char** environ;

namespace mfu {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotRun = 126;  // as a shell says it
constexpr int kNotFound = 127;

struct RunOptions {
  std::string config, run_dir, interval, log, peak_tflops, peak_gbps, profiler, cupti, report, every, log_format;
  bool no_run_dir = false, all_ranks = false, keep_going = false, quiet = false;
  std::vector<std::string> command, set;
};

/// A run, once all of its options were understood.
struct Plan {
  Config config;
  std::string log;      ///< where our own lines go: where the library's go; stderr where those are JSON
  std::string run_dir;  ///< as a person would name it from here; empty: none
  std::map<std::string, std::uintmax_t> before;  ///< run files that were there, and their sizes
  [[nodiscard]] bool speaks() const { return config.rank == 0 && !config.disabled; }
  void say(const std::string& line) const {
    // As the library does beside progress bars.
    const bool terminal = log == "stderr" && ::isatty(STDERR_FILENO) == 1;
    (void)LineFile(log).append((terminal ? "\r\x1b[K[mfu] " : "[mfu] ") + printable(line));
  }
};

/// A variable that points elsewhere already belongs to another tool, which then keeps it.
void inject(const char* variable, const std::string& library) {
  const char* held = std::getenv(variable);
  if (held != nullptr && *held != '\0' && library != held) {
    say(stderr, "[mfu] {} is set to {}: left as it is, so this part of the measurement is off; unset it to measure\n",
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
  std::array<char, 1024> text;
  const std::string pid = std::to_string(::getppid());
  const auto ticks = start_ticks(file_start(("/proc/" + pid + "/stat").c_str(), text));
  return ticks ? pid + "-" + std::to_string(*ticks) : "";
}

/// Where this process is one rank of several, each of which runs `mfu run` (as below srun or mpirun): a name that all
/// of them come to, so that one folder holds the job. Empty for a process without a launcher.
std::string job_name() {
  const LauncherFacts launcher = read_launcher([](const char* name) { return std::getenv(name); });
  if (!launcher.job.empty() || launcher.world_size <= 1) return launcher.job;
  const std::string parent = parent_process();
  return parent.empty() ? "" : "ranks-of-" + parent;
}

std::string run_dir_of_job() {
  const std::string job = job_name();
  return job.empty() ? new_run_dir() : "mfu-runs/" + job;
}

/// A number that an option was given, if it was; the expected form goes to `mistakes`.
void check_number(const char* option, const std::string& text, double least, double most, const char* expected,
                  std::vector<std::string>& mistakes) {
  if (text.empty()) return;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end == '\0' && value >= least && value <= most) return;
  mistakes.push_back(std::string(option) + ": expected " + expected + ", got \"" + text + "\"");
}

/// `directory` from here, where that is shorter.
std::string from_here(const std::string& directory) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  const fs::path near = error ? fs::path() : fs::path(directory).lexically_relative(here);
  return near.empty() || near.string().starts_with("..") ? directory : near.string();
}

void set_environment(const RunOptions& o) {
  std::error_code error;
  if (!o.config.empty()) {
    // A path is meant from here, not from wherever the program changes to; a model id is left as it is.
    const fs::path path = fs::absolute(o.config, error);
    ::setenv("MFU_MODEL_CONFIG", !error && fs::exists(path, error) ? path.c_str() : o.config.c_str(), 1);
  }
  set_if_given("MFU_INTERVAL", o.interval);
  if (!o.log.empty()) {
    const bool word = o.log == "stderr" || o.log == "stdout" || o.log == "none";
    ::setenv("MFU_LOG", word ? o.log.c_str() : fs::absolute(o.log, error).c_str(), 1);
  }
  set_if_given("MFU_LOG_EVERY", o.quiet ? "0" : o.every);
  set_if_given("MFU_LOG_FORMAT", o.log_format);
  set_if_given("MFU_SET", fmt::format("{}", fmt::join(o.set, ",")));
  set_if_given("MFU_PEAK_TFLOPS", o.peak_tflops);
  set_if_given("MFU_PEAK_GBPS", o.peak_gbps);
  set_if_given("MFU_PROFILER", o.profiler);
  set_if_given("MFU_CUPTI", o.cupti);
  if (o.all_ranks) ::setenv("MFU_LOG_RANKS", "all", 1);
}

/// A line about the config in the words of the command: by the option, without what would be used instead.
std::string as_option(const RunOptions& o, std::string line) {
  const auto rename = [&line](const char* variable, const char* option, bool given) {
    if (given && line.starts_with(variable)) line.replace(0, std::strlen(variable), option);
  };
  rename("MFU_MODEL_CONFIG", "--config", !o.config.empty());
  rename("MFU_SET", "--set", !o.set.empty());
  rename("MFU_INTERVAL", "--interval", !o.interval.empty());
  rename("MFU_LOG_EVERY", "--every", !o.every.empty());
  rename("MFU_PEAK_TFLOPS", "--peak-tflops", !o.peak_tflops.empty());
  rename("MFU_PEAK_GBPS", "--peak-gbps", !o.peak_gbps.empty());
  for (const char* instead : {"; measuring time only", "; ignored", "; this rule is left out", "; using "})
    if (const std::size_t at = line.rfind(instead); at != std::string::npos && !o.keep_going) line.resize(at);
  return line;
}

/// Whether `config` is a model id whose config the program may itself bring into the cache: no path that was mistyped.
bool may_come_later(const std::string& config) {
  const std::size_t slash = config.find('/');
  std::error_code error;
  return slash != std::string::npos && slash == config.rfind('/') && !config.ends_with(".json") &&
         !fs::exists(config.substr(0, slash), error);
}

/// Everything that can be known to be wrong before the program starts, one line each.
std::vector<std::string> mistakes_of(const RunOptions& o, const Config& config) {
  std::vector<std::string> mistakes;
  check_number("--interval", o.interval, 0.01, 1e6, "seconds from 0.01 to 1,000,000", mistakes);
  check_number("--every", o.every, 1, 1e9, "a number of windows from 1 on", mistakes);
  check_number("--peak-tflops", o.peak_tflops, 1e-6, 1e12, "a number above 0, in 1e12 FLOP/s", mistakes);
  check_number("--peak-gbps", o.peak_gbps, 1e-6, 1e12, "a number above 0, in 1e9 B/s", mistakes);
  // The config repeats of a variable the message of its option's check.
  const auto was_said = [said = mistakes](const std::string& line) {
    return std::any_of(said.begin(), said.end(), [&](const std::string& mistake) {
      return mistake.substr(0, mistake.find(':')) == line.substr(0, line.find(':'));
    });
  };
  for (const ConfigMistake& mistake : config_mistakes(config))
    if (const std::string line = as_option(o, mistake.line);
        !was_said(line) && !(may_come_later(o.config) && line.starts_with("--config " + o.config + ": ")))
      mistakes.push_back(line);
  const auto check = [&mistakes](const char* what, const Result<void>& done) {
    if (!done) mistakes.push_back(std::string(what) + " " + done.error().message);
  };
  const std::string cupti = (o.cupti.empty() ? "MFU_CUPTI " : "--cupti ") + config.cupti_path + ": ";
  if (struct ::stat info{}; !config.cupti_path.empty() && config.cupti_path.find('/') != std::string::npos) {
    if (::access(config.cupti_path.c_str(), R_OK) != 0 || ::stat(config.cupti_path.c_str(), &info) != 0)
      mistakes.push_back(cupti + std::strerror(errno));
    else if (S_ISDIR(info.st_mode))
      mistakes.push_back(cupti + "is a folder, expected the library's file");
  } else if (!o.cupti.empty() && ::stat(o.cupti.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    mistakes.push_back(cupti + "is a folder, expected the library's file");
  }
  if (LineFile(config.log.target).kind() == LineFile::Kind::kFile)
    check(o.log.empty() ? "MFU_LOG" : "--log", check_output_file(config.log.target));
  if (!o.run_dir.empty()) check("--run-dir", check_output_folder(config.run_dir));
  if (!config.trace.empty()) check("MFU_TRACE", check_output_file(config.trace));
  if (!config.tb_dir.empty()) check("MFU_TB_DIR", check_output_folder(config.tb_dir));
  if (!o.report.empty()) check("--report", check_output_file(o.report));
  if (!o.report.empty() && o.no_run_dir)
    mistakes.emplace_back("--report needs the run directory that --no-run-dir leaves out");
  return mistakes;
}

/// Names the run directory for the program. It is made with its first line, by the library.
void choose_run_dir(const RunOptions& o, Plan& plan) {
  const char* given = std::getenv("MFU_RUN_DIR");
  if (o.no_run_dir) {
    ::unsetenv("MFU_RUN_DIR");
    return;
  }
  if (o.run_dir.empty() && given != nullptr) {
    plan.run_dir = plan.config.run_dir;
    return;
  }
  std::error_code error;
  std::string directory = fs::absolute(o.run_dir.empty() ? run_dir_of_job() : o.run_dir, error).string();
  if (error) directory = o.run_dir;
  if (o.run_dir.empty()) {
    if (const auto done = check_output_folder(directory); !done) {
      if (plan.speaks()) plan.say("run directory " + done.error().message + ": log lines only");
      return;
    }
  }
  ::setenv("MFU_RUN_DIR", directory.c_str(), 1);
  plan.run_dir = directory;
}

/// A run directory and those of its files that this run wrote.
struct Written {
  std::string directory;
  std::vector<std::string> files;
};

/// MFU_RUN_DIR may stand for several folders.
void for_each_run_file(
    const Plan& plan,
    const std::function<void(const std::string& directory, const std::string& file, std::uintmax_t size)>& each) {
  const auto found = find_run_dirs({});
  if (plan.run_dir.empty() || !found) return;
  for (const std::string& directory : *found) {
    const auto listed = list_run_files(directory);
    if (!listed) continue;
    for (const std::string& file : *listed) {
      std::error_code failed;
      if (const std::uintmax_t size = fs::file_size(file, failed); !failed) each(directory, file, size);
    }
  }
}

/// The files that came or grew since the start; by no clock, since a file server's may differ.
std::vector<Written> written_by(const Plan& plan) {
  std::vector<Written> all;
  for_each_run_file(plan, [&](const std::string& directory, const std::string& file, std::uintmax_t size) {
    if (const auto at = plan.before.find(file); at != plan.before.end() && size <= at->second) return;
    if (all.empty() || all.back().directory != directory) all.push_back({directory, {}});
    all.back().files.push_back(file);
  });
  return all;
}

/// Its last line, if that is of the run: of all of it, or (true) of the run so far.
std::optional<bool> end_of(const std::string& path) {
  std::optional<bool> so_far;
  RunFile file(path, RunFile::From::kTail);
  (void)file.poll([&](RunLine&& line) {
    if (const auto* end = std::get_if<EndLine>(&line.what)) so_far = end->whole.so_far;
  });
  return so_far;
}

/// A signal leaves some processes no time for their last lines: all are asked for the run so far, and have two seconds.
void ask_for_run_so_far(const Plan& plan) try {
  const std::vector<Written> written = written_by(plan);
  std::vector<std::string> waited;
  for (const Written& run : written) {
    const std::string ask = run.directory + "/now";
    if (const int fd = ::open(ask.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW, 0666); fd >= 0) ::close(fd);
    waited.insert(waited.end(), run.files.begin(), run.files.end());
  }
  for (int i = 0; i < 80 && !waited.empty(); ++i) {
    ::usleep(25'000);
    std::erase_if(waited, [](const std::string& file) { return end_of(file).has_value(); });
  }
  for (const Written& run : written) ::unlink((run.directory + "/now").c_str());
} catch (const std::exception&) {  // the signal is passed on all the same
}

std::string signal_name(int signal) {
  constexpr std::pair<int, const char*> kNames[] = {
      {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},   {SIGABRT, "SIGABRT"},
      {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGPIPE, "SIGPIPE"},
      {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"}};
  for (const auto& [number, name] : kNames)
    if (number == signal) return name;
  return "signal " + std::to_string(signal);
}

/// The model's config, which the program may have brought into the cache that was looked into before it began.
std::optional<Config> late_config(const RunOptions& o, const Plan& plan) {
  if (plan.config.model || o.config.empty()) return std::nullopt;
  Result<Config> read = trace_config({.config = o.config});
  return read && read->model ? std::optional(std::move(*read)) : std::nullopt;
}

/// The table from what the program wrote while it ran, where it could not print one (`ended`), or where its own had no
/// model. \return whether `late` counted the run
bool print_table(const Plan& plan, const Written& written, int status, bool ended, const std::optional<Config>& late) {
  JobBuilder builder(written.directory, false);
  std::vector<std::string> failures;
  bool counted = false, lacks_open = false;
  for (const RunProcess& process : find_processes(written.files, failures)) {
    auto history = read_process(process);
    if (!history) continue;
    counted = (late && count_late(*late, *history)) || counted;
    lacks_open = lacks_open || !history->end;
    builder.add(*history);
  }
  if (ended && !counted) return false;
  const Job job = builder.finish();
  const std::string how = WIFSIGNALED(status) ? "ended by " + signal_name(WTERMSIG(status))
                          : ended             ? "the program brought " + late->model_source
                                              : "ended without its last line";
  if (job.regions.empty()) {
    plan.say(how + " before its first window was written: no table");
    return counted;
  }
  const std::string open = lacks_open ? "without the window that was open" : "with the window that was open";
  plan.say(how + (ended ? "; with it the run is:" : "; from the run directory, " + open + ":"));
  std::istringstream lines(job_text(job));
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("unfinished: ")) plan.say(line);
  return counted;
}

/// The last lines: the table where the program could not print it, and what to do next.
void conclude(const RunOptions& o, const Plan& plan, int status) {
  if (!plan.speaks() || plan.run_dir.empty()) return;
  const std::vector<Written> written = written_by(plan);
  if (written.empty()) {
    const std::string why = cannot_load_because(o.command.front());
    plan.say(why.empty() ? "nothing was measured: no process put work on a GPU with the library in it; mfu doctor says "
                           "what is missing"
                         : "nothing was measured: " + o.command.front() + " " + why);
    // The driver says nothing where the file that the variable names is not there.
    if (why.empty() && library_path()) plan.say("a container must hold " + *library_path() + " under the same path");
    return;
  }
  const Written& first = written.front();
  const std::string mine = "-" + std::to_string(plan.config.rank) + "-";
  const bool told = std::any_of(first.files.begin(), first.files.end(), [&](const std::string& file) {
    return fs::path(file).filename().string().find(mine) != std::string::npos && end_of(file) == false;
  });
  const std::optional<Config> late = late_config(o, plan);
  const bool counted = (!told || late) && print_table(plan, first, status, told, late);
  if (!o.report.empty() && run_again({"report", first.directory, "-o", o.report}, /*silent=*/true) == 0)
    plan.say("report: " + o.report);
  const std::string others =
      written.size() > 1 ? "; and " + std::to_string(written.size() - 1) + " more run directories" : "";
  plan.say("next: mfu report " + shell_word(from_here(first.directory)) +
           (counted ? " -c " + shell_word(o.config) : "") + others);
}

int run(const RunOptions& o) {
  const auto library = library_path();
  if (!library) return say_error("run", library.error().message, kCannotRun);
  inject("CUDA_INJECTION64_PATH", *library);
  inject("NVTX_INJECTION64_PATH", *library);
  set_environment(o);
  if (!o.run_dir.empty()) {
    std::error_code error;
    const fs::path absolute = fs::absolute(o.run_dir, error);
    ::setenv("MFU_RUN_DIR", error ? o.run_dir.c_str() : absolute.c_str(), 1);
  }
  Plan plan;
  plan.config = load_config([](const char* name) -> const char* { return ::getenv(name); }, environ);
  plan.log = plan.config.log.json && plan.config.log.target != "none" ? "stderr" : plan.config.log.target;
  if (!plan.config.disabled) {
    const std::vector<std::string> mistakes = mistakes_of(o, plan.config);
    for (const std::string& mistake : mistakes) say_error("run", mistake);
    if (!mistakes.empty() && !o.keep_going)
      return say_error("run", "nothing was started; --keep-going starts the program all the same", kUsageError);
  }
  choose_run_dir(o, plan);
  if (plan.speaks())
    for_each_run_file(
        plan, [&](const std::string&, const std::string& file, std::uintmax_t size) { plan.before[file] = size; });
  if (plan.speaks() && !(plan.run_dir.empty() && !plan.config.model))
    plan.say(config_words(plan.config) + (plan.run_dir.empty() ? "" : "; run directory " + from_here(plan.run_dir)));
  if (plan.speaks() && !plan.config.model && may_come_later(o.config))
    plan.say(o.config +
             " is in no local cache yet: it counts the run as soon as the program has it there; to have it "
             "from the start: hf download " +
             o.config + " config.json");
  const ProgramEnd end = run_and_wait(o.command, [&plan] { ask_for_run_so_far(plan); });
  if (end.start_error != 0) {
    // Where its loader is missing, the kernel says the same as where the program is.
    const std::string why = cannot_load_because(o.command.front());
    say(stderr, "mfu run: {}: {}{}\n", o.command.front(), std::strerror(end.start_error),
        why.empty() ? "" : " (it " + why + ")");
    return end.start_error == ENOENT ? kNotFound : kCannotRun;
  }
  try {
    conclude(o, plan, end.status);
  } catch (const std::exception& e) {
    say_error("run", e.what());
  }
  end_like(end.status);
}

/// Cuts the program's words off the end of `arguments`: the parser would look for its own options among them.
std::vector<std::string> take_program(const CommandInfo& run, std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "run") return {};
  std::size_t at = 1;
  while (at < arguments.size()) {
    const std::string& word = arguments[at];
    if (word == "--" || word.size() < 2 || word.front() != '-') break;
    const OptionInfo* option = run.find(word);  // `-c`, `--config`; not `-cX`, `--config=X`
    at += option != nullptr && option->takes_value ? 2 : 1;
  }
  at = std::min(at, arguments.size());
  const bool marked = at < arguments.size() && arguments[at] == "--";
  std::vector<std::string> program(arguments.begin() + static_cast<std::ptrdiff_t>(at) + (marked ? 1 : 0),
                                   arguments.end());
  arguments.resize(at);
  return program;
}

}  // namespace

void add_run(CommandLine& line, std::vector<std::string>& arguments) {
  auto options = std::make_shared<RunOptions>();
  Command sub = line.command("run", "Run a program with the library in it");
  sub.option("program", options->command, "the program, and all that follows is its own", {.type = "CMD"});
  sub.option("-c,--config", options->config,
             "model: HF config.json, its folder, a model id, or an own config (MFU_MODEL_CONFIG)", {.type = "PATH"});
  sub.option("-d,--run-dir", options->run_dir, "where the run's files go; default: mfu-runs/<time>-<pid>",
             {.type = "DIR"});
  sub.flag("--no-run-dir", options->no_run_dir, "log lines only", {.excludes = {"--run-dir"}});
  sub.option("-i,--interval", options->interval, std::string("seconds per window; default: ") + kDefaultInterval.text,
             {.type = "SECONDS"});
  sub.option("--log", options->log, "stderr, stdout, none or a file; default: stderr", {.type = "PATH"});
  sub.option("--every", options->every, "log every Nth window only; the run directory has all", {.type = "N"});
  sub.flag("--quiet", options->quiet, "log no windows, only warnings and the table at the end",
           {.excludes = {"--every"}});
  sub.option("--log-format", options->log_format, "text, or json: the lines of the run directory",
             {.one_of = {"text", "json"}});
  sub.flag("--all-ranks", options->all_ranks, "every rank logs, not only rank 0");
  sub.option("--set", options->set, "overrides of the config: workload.batch=8,peak.dtype=fp8; may be repeated",
             {.type = "KEY=VALUE", .one_value_each = true});
  sub.option("--peak-tflops", options->peak_tflops, "peak of the device in 1e12 FLOP/s", {.type = "NUMBER"});
  sub.option("--peak-gbps", options->peak_gbps, "memory bandwidth of the device in 1e9 B/s", {.type = "NUMBER"});
  sub.option("--profiler", options->profiler,
             "own: hold CUPTI's one subscriber slot; share: leave it to torch.profiler", {.one_of = {"own", "share"}});
  sub.option("--cupti", options->cupti, "the libcupti to use", {.type = "PATH"});
  sub.option("--report", options->report, "write the page of `mfu report` at the end", {.type = "FILE"});
  sub.flag("--keep-going", options->keep_going, "start the program even where the config or an option is wrong");
  sub.footer({"mfu run -c Qwen/Qwen3-8B python generate.py",
              "mfu run -c config.json -i 5 torchrun --nproc-per-node 8 train.py",
              "srun mfu run -c config.json -d 'runs/%q{SLURM_JOB_ID}' -- python train.py"},
             "that of CMD; 126 when it cannot be run, 127 when it is not found");
  options->command = take_program(line.commands().back(), arguments);
  sub.action([options] {
    if (options->command.empty())
      return say_error("run", "no program to run; for example: mfu run python train.py", kUsageError);
    return run(*options);  // only reached when it was not run
  });
}

}  // namespace mfu
