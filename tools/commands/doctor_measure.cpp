#include "tools/commands/doctor_measure.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/commands/child.h"
#include "tools/commands/known_work.h"
#include "tools/commands/temporary_folder.h"

extern char** environ;

namespace mfu {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kInterval = 1;          ///< of the windows [s]
constexpr double kTimeTolerance = 0.05;  ///< launching a kernel and the clock's grain are in its time
constexpr double kMostLag = 1.5;         ///< of a window of a busy stream, beyond one interval [s]
constexpr double kBusy = 0.9;            ///< of a window inside the loop

/// This process's environment with the library in it, and of the MFU_* variables that were set only MFU_CUPTI.
std::vector<std::string> environment(const std::string& library, const std::string& folder) {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const bool ours = text.starts_with("MFU_") && !text.starts_with("MFU_CUPTI=") && !text.starts_with("MFU_PROFILER=");
    if (!ours && !text.starts_with("CUDA_INJECTION64_PATH=") && !text.starts_with("NVTX_INJECTION64_PATH="))
      variables.emplace_back(text);
  }
  variables.push_back("CUDA_INJECTION64_PATH=" + library);
  variables.push_back("MFU_RUN_DIR=" + folder + "/run");
  variables.push_back("MFU_INTERVAL=" + std::to_string(kInterval));
  variables.emplace_back("MFU_LOG=none");
  variables.emplace_back("MFU_DETECT=0");
  return variables;
}

/// Starts this command again. \return its exit code; less than 0: the signal that ended it.
Result<int> run_child(const std::string& library, const std::string& folder, double loop_s) {
  std::vector<std::string> words{
      "mfu", "doctor", "--known-work", folder + "/work.json", "--seconds", std::to_string(loop_s)};
  std::vector<std::string> variables = environment(library, folder);
  const std::vector<char*> argv = spawn_arguments(words), envp = spawn_arguments(variables);
  const pid_t child = ::fork();
  if (child < 0) return Error{std::string("no process can be started: ") + std::strerror(errno)};
  if (child == 0) {
    ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(127);
  }
  int status = 0;
  for (double waited = 0; ::waitpid(child, &status, WNOHANG) == 0; waited += 0.05) {
    if (waited > 20 * loop_s + 120) {
      ::kill(child, SIGKILL);
      (void)::waitpid(child, &status, 0);
      return Error{"the process does not end"};
    }
    ::usleep(50'000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// The lines of the one run that the folder holds.
std::vector<Json> lines_of(const std::string& folder) {
  std::vector<Json> lines;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      if (Json parsed = Json::parse(line, nullptr, false); parsed.is_object()) lines.push_back(std::move(parsed));
  }
  return lines;
}

double number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : NAN;
}

std::string text(const char* format, double a, double b) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, format, a, b);
  return buffer;
}

class Comparison {
 public:
  Comparison(const Json& work, const std::vector<Json>& lines) : work_(work), lines_(lines) {
    for (const Json& line : lines_) {
      if (line.value("type", "") == "start") start_ = line;
      if (line.value("type", "") == "end") end_ = line;
    }
    for (const Json& row : end_.value("regions", Json::array()))
      if (row.value("region", "") == "total") total_ = row;
  }

  std::vector<Held> all() {
    level();
    launches();
    kernels();
    time();
    loop();
    assumptions();
    return std::move(found_);
  }

 private:
  void add(bool holds, const char* what, std::string said) { found_.push_back({holds, what, std::move(said)}); }

  void level() {
    const std::string level = start_.value("cupti", Json::object()).value("level", "none");
    add(level == "full" || level == "share", "records", "level " + level);
  }
  void launches() {
    const Json account = end_.value("launches", Json::object());
    const double seen = number(account, "seen"), made = number(work_, "launches");
    add(seen == made, "launches", text("%.0f seen of %.0f made", seen, made));
    const double dropped = number(account, "dropped"), not_timed = number(account, "not_timed");
    add(dropped == 0 && not_timed <= number(work_, "unfinished"), "account",
        text("%.0f without a record, %.0f without a time (one kernel still runs at the exit)", dropped, not_timed));
  }
  void kernels() {
    const double seen = number(total_, "kernels"), ran = number(work_, "kernels");
    add(seen == ran, "kernels", text("%.0f recorded of %.0f that ran, 200 of them in graphs", seen, ran));
  }
  void time() {
    const double ours = number(total_, "kernel_sum_s"), told = number(work_, "kernel_s");
    add(std::abs(ours / told - 1) <= kTimeTolerance, "time", text("%.4g s of kernels that last %.4g s", ours, told));
    const double events = number(work_, "by_events_s"), alone = number(work_, "measured_alone_s");
    add(std::abs(events / alone - 1) <= kTimeTolerance, "events",
        text("CUDA events say %.4g s of kernels that last %.4g s", events, alone));
  }
  /// A GPU that never runs dry is measured, and its windows come in time.
  void loop() {
    const double begin = number(work_, "loop_begin_ns"), end = number(work_, "loop_end_ns");
    double least = 1, lag = 0;
    int windows = 0;
    for (const Json& line : lines_) {
      if (line.value("type", "") != "window" || line.value("region", "") != "total") continue;
      if (number(line, "t0_ns") < begin || number(line, "t1_ns") > end) continue;
      ++windows;
      least = std::min(least, number(line, "busy_s") / number(line, "elapsed_s"));
      lag = std::max(lag, (number(line, "t_ns") - number(line, "t1_ns")) * 1e-9);
    }
    if (windows == 0) return add(false, "loop", "no window of the loop that never waits");
    add(least >= kBusy, "loop",
        text("a GPU that never runs dry: busy %.3g %% or more of each of %.0f windows", least * 100, windows));
    add(lag <= kInterval + kMostLag, "lag",
        text("its windows are out %.3g s after their end at most (limit %.3g s)", lag, kInterval + kMostLag));
  }
  void assumptions() {
    bool any = false;
    for (const Json& line : lines_) {
      if (line.value("type", "") != "event") continue;
      const std::string kind = line.value("kind", ""), message = line.value("message", "");
      if (kind != "trust" && kind != "order" && kind != "untimed" && kind != "dropped" && kind != "flush") continue;
      if (message.ends_with("as expected again")) continue;
      any = true;
      add(false, "assumption", message);
    }
    if (!any) add(true, "assumption", "nothing that the library relies on was contradicted");
  }

  const Json& work_;
  const std::vector<Json>& lines_;
  Json start_ = Json::object(), end_ = Json::object(), total_ = Json::object();
  std::vector<Held> found_;
};

}  // namespace

Result<std::vector<Held>> measure_known_work(const std::string& library, double loop_s) {
  const TemporaryFolder folder("mfu-doctor");
  if (folder.path().empty()) return Error{std::string("no temporary folder: ") + std::strerror(errno)};
  const Result<int> code = run_child(library, folder.path(), loop_s);
  if (!code) return code.error();
  std::ifstream file(folder.path() + "/work.json");
  const Json work = Json::parse(file, nullptr, false);
  if (*code != 0 || !work.is_object() || work.contains("error"))
    return Error{work.is_object() && work.contains("error") ? work["error"].get<std::string>()
                 : *code < 0 ? "the process was ended by signal " + std::to_string(-*code)
                             : "the process ended with exit code " + std::to_string(*code)};
  const std::vector<Json> lines = lines_of(folder.path() + "/run");
  if (lines.empty()) return Error{"the library left no run directory"};
  return Comparison(work, lines).all();
}

int run_measured_work(double loop_s, const std::string& path) {
  KnownWork work;
  std::string error;
  Json said;
  if (run_known_work(loop_s, work, error))
    said = {{"launches", work.launches},           {"kernels", work.kernels},
            {"unfinished", work.unfinished},       {"kernel_s", work.kernel_s},
            {"by_events_s", work.by_events_s},     {"measured_alone_s", work.measured_alone_s},
            {"loop_begin_ns", work.loop_begin_ns}, {"loop_end_ns", work.loop_end_ns}};
  else
    said = {{"error", error}};
  std::ofstream file(path);
  file << said.dump() << '\n';
  file.close();
  return file.good() ? 0 : 1;
}

}  // namespace mfu
