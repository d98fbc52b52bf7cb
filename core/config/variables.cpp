#include "core/config/variables.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>

#include "core/base/edit_distance.h"
#include "core/base/number_text.h"
#include "core/config/launcher.h"

namespace mfu {
namespace {

using Problems = std::vector<Problem>;

void wrong(Problems* problems, const char* name, const char* expected, std::string_view got, const char* instead) {
  problems->push_back({"", name, Problem::Kind::kValue,
                       "expected " + std::string(expected) + ", got \"" + std::string(got.substr(0, 60)) + "\"",
                       instead});
}

std::optional<double> positive_number(const char* name, const char* text, Problems* problems, const char* instead) {
  const std::optional<double> value = parse_number(text);
  if (value && *value > 0) return value;
  wrong(problems, name, "a number > 0", text, instead);
  return std::nullopt;
}

std::optional<bool> flag(const char* name, std::string_view text, Problems* problems, const char* instead,
                         const char* expected = "1 or 0") {
  if (text == "1" || text == "true") return true;
  if (text == "0" || text == "false") return false;
  wrong(problems, name, expected, text, instead);
  return std::nullopt;
}

/// %h host, %p pid, %r rank, %q{NAME} an environment variable, %% a percent sign; anything else stays.
std::string expand(std::string_view text, const Config& config, const Getenv& getenv) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char kind = text[++i];
    if (kind == 'h') {
      out += config.host;
    } else if (kind == 'p') {
      out += std::to_string(::getpid());
    } else if (kind == 'r') {
      out += std::to_string(config.rank);
    } else if (kind == '%') {
      out += '%';
    } else if (kind == 'q' && i + 1 < text.size() && text[i + 1] == '{' &&
               text.find('}', i) != std::string_view::npos) {
      const std::size_t end = text.find('}', i);
      const char* value = value_of(getenv, std::string(text.substr(i + 2, end - i - 2)).c_str());
      if (value != nullptr) out += value;
      i = end;
    } else {
      out += '%';
      out += kind;
    }
  }
  return out;
}

/// A path as it is now: the program may go to another folder while it runs.
std::string expand_path(std::string_view text, const Config& config, const Getenv& getenv) {
  std::string path = expand(text, config, getenv);
  if (path.empty() || path.front() == '/') return path;
  char here[4096];
  if (::getcwd(here, sizeof here) == nullptr) return path;
  return std::string(here) + "/" + path;
}

std::string host_name() {
  char buffer[256] = {};
  if (::gethostname(buffer, sizeof buffer - 1) != 0 || buffer[0] == '\0') return "localhost";
  return buffer;
}

void read_interval(const char* text, const Getenv&, Config& config, Problems* problems) {
  const auto use = [](const ShownNumber& instead) { return std::string("using ") + instead.text; };
  const auto given = positive_number("MFU_INTERVAL", text, problems, use(kDefaultInterval).c_str());
  config.interval_s = given.value_or(kDefaultInterval.value);
  for (const auto& [limit, word, beyond] :
       {std::tuple(kLeastInterval, "at least ", -1), {kMostInterval, "at most ", 1}}) {
    if ((config.interval_s - limit.value) * beyond <= 0) continue;
    wrong(problems, "MFU_INTERVAL", (word + std::string(limit.text) + " s").c_str(), text, use(limit).c_str());
    config.interval_s = limit.value;
  }
}

void read_log_ranks(const char* text, const Getenv&, Config& config, Problems* problems) {
  const std::string_view word(text);
  config.log_all_ranks = word == "all";
  if (word != "all" && word != "0") wrong(problems, "MFU_LOG_RANKS", "all or 0", word, "using 0");
}

void read_log_every(const char* text, const Getenv&, Config& config, Problems* problems) {
  char* end = nullptr;
  const long long every = std::strtoll(text, &end, 10);
  if (end != text && *end == '\0' && every >= 0)
    config.log_every = every;
  else
    wrong(problems, "MFU_LOG_EVERY", "a whole number >= 0", text, "using 1");
}

void read_log_format(const char* text, const Getenv&, Config& config, Problems* problems) {
  const std::string_view word(text);
  config.log_json = word == "json";
  if (word != "json" && word != "text") wrong(problems, "MFU_LOG_FORMAT", "text or json", word, "using text");
}

void read_profiler(const char* text, const Getenv&, Config& config, Problems* problems) {
  const std::string_view word(text);
  if (word == "share") config.profiler = ProfilerPolicy::kShare;
  if (word != "share" && word != "own") wrong(problems, "MFU_PROFILER", "own or share", word, "using own");
}

void read_graphs(const char* text, const Getenv&, Config& config, Problems* problems) {
  const std::string_view word(text);
  config.graphs = word == "graph" ? GraphTracing::kGraph : word == "node" ? GraphTracing::kNode : GraphTracing::kAuto;
  if (config.graphs == GraphTracing::kAuto && word != "auto")
    wrong(problems, "MFU_GRAPHS", "auto, node or graph", word, "using auto");
}

void read_run_dir_limit(const char* text, const Getenv&, Config& config, Problems* problems) {
  if (std::string_view(text) == "none") {
    config.run_dir_limit_mb = 0;
    return;
  }
  config.run_dir_limit_mb = positive_number("MFU_RUN_DIR_LIMIT", text, problems, "using 100").value_or(100);
  if (config.run_dir_limit_mb < 1) {
    wrong(problems, "MFU_RUN_DIR_LIMIT", "at least 1 MB a day, or none", text, "using 1");
    config.run_dir_limit_mb = 1;
  }
  config.run_dir_limit_mb = std::min(config.run_dir_limit_mb, 1e9);
}

void read_log(const char* text, const Getenv& getenv, Config& config, Problems*) {
  const std::string_view word(text);
  config.log =
      word == "stderr" || word == "stdout" || word == "none" ? std::string(word) : expand_path(word, config, getenv);
}

constexpr Variable kVariables[] = {
    {"MFU_MODEL_CONFIG", "none",
     "Hugging Face config.json, its folder, a model id in the local cache, an own config, or inline JSON", nullptr},
    {"MFU_SET", "none", "overrides: workload.batch=8,peak.dtype=fp8", nullptr},
    {"MFU_INTERVAL", kDefaultInterval.text, "seconds per window", read_interval},
    {"MFU_RUN_DIR", "none", "the run directory; %h %p %r %q{VAR} expand to host, pid, rank, a variable",
     [](const char* text, const Getenv& getenv, Config& c, Problems*) { c.run_dir = expand_path(text, c, getenv); }},
    {"MFU_RUN_DIR_LIMIT", "100", "MB a day that each output of a process has at most; none: no limit",
     read_run_dir_limit},
    {"MFU_TB_DIR", "none", "TensorBoard event files",
     [](const char* text, const Getenv& getenv, Config& c, Problems*) { c.tb_dir = expand_path(text, c, getenv); }},
    {"MFU_LOG", "stderr", "stderr, stdout, none or a file", read_log},
    {"MFU_LOG_RANKS", "0", "all: every rank logs", read_log_ranks},
    {"MFU_LOG_EVERY", "1", "log every so many-th window only; 0: the table alone", read_log_every},
    {"MFU_LOG_FORMAT", "text", "text, or json: the lines of the run directory", read_log_format},
    {"MFU_COMPONENTS", "0", "1: log each region's matmuls by what they compute",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.log_components = flag("MFU_COMPONENTS", text, problems, "using 0").value_or(false);
     }},
    {"MFU_PEAK_TFLOPS", "the table", "the device's peak, always [1e12 FLOP/s]", nullptr},
    {"MFU_PEAK_GBPS", "the table", "the device's memory bandwidth, always [1e9 B/s]", nullptr},
    {"MFU_PROFILER", "own", "own or share CUPTI's one subscriber slot", read_profiler},
    {"MFU_GRAPHS", "auto",
     "auto: a launch of a CUDA graph is timed as a whole and split by what its kernels take elsewhere; node: every "
     "kernel is "
     "timed; graph: each launch as a whole",
     read_graphs},
    {"MFU_BUDGET", "none",
     "per cent of a step that tracing may cost: it pauses to find its cost, and where that is more",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.budget = positive_number("MFU_BUDGET", text, problems, "using none").value_or(0) / 100;
     }},
    {"MFU_CUPTI", "searched", "the libcupti to open",
     [](const char* text, const Getenv&, Config& c, Problems*) { c.cupti_path = text; }},
    {"MFU_CUPTI_V2", "0", "1: allow other subscribers of CUPTI 13.3 and newer beside this library",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.cupti_v2 = flag("MFU_CUPTI_V2", text, problems, "using 0").value_or(false);
     }},
    {"MFU_TRACE", "none", "a file that gets the last seconds of the run as a trace",
     [](const char* text, const Getenv& getenv, Config& c, Problems* problems) {
       c.trace = expand_path(text, c, getenv);
       if (c.trace.ends_with(".gz"))
         wrong(problems, "MFU_TRACE", "a name without .gz, since a recording is not compressed", text, "using it");
     }},
    {"MFU_TRACE_SECONDS", "60", "seconds that a trace covers",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.trace_seconds = std::min(positive_number("MFU_TRACE_SECONDS", text, problems, "using 60").value_or(60), 1e6);
     }},
    {"MFU_DETECT", "1", "0: do not look for steps where no range names any; explain: say why each is taken or refused",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.explain_detection = std::string_view(text) == "explain";
       c.detect =
           c.explain_detection || flag("MFU_DETECT", text, problems, "using 1", "1, 0 or explain").value_or(true);
     }},
    {"MFU_PYTHON", "1", "0: do not ask the Python interpreter what the program does",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.python = flag("MFU_PYTHON", text, problems, "using 1").value_or(true);
     }},
    {"MFU_IDLE", "1", "0: do not look at what the program does while the GPU is idle",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.idle = flag("MFU_IDLE", text, problems, "using 1").value_or(true);
     }},
    {"MFU_EXECUTED", "1", "0: do not look at the program's calls to cuBLAS",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.executed = flag("MFU_EXECUTED", text, problems, "using 0").value_or(false);
     }},
    {"MFU_DISABLE", "unset", "1: load, do nothing",
     [](const char* text, const Getenv&, Config& c, Problems* problems) {
       c.disabled = flag("MFU_DISABLE", text, problems, "using 0").value_or(false);
     }},
};

}  // namespace

std::span<const Variable> variables() noexcept { return kVariables; }

void read_variables(const Getenv& getenv, Config& config, Problems* problems) {
  config.host = host_name();
  const LauncherFacts launcher = read_launcher(getenv);
  config.rank = launcher.rank;
  config.local_rank = launcher.local_rank;
  config.world_size = launcher.world_size;
  config.job_id = launcher.job_id;
  config.restart = launcher.restart;
  for (const auto& [name, value] : launcher.unusable)
    problems->push_back(
        {"", name, Problem::Kind::kValue, "expected a whole number, got \"" + value.substr(0, 100) + "\"", "ignored"});
  for (const Variable& variable : kVariables) {
    const char* value = variable.read != nullptr ? value_of(getenv, variable.name) : nullptr;
    if (value != nullptr) variable.read(value, getenv, config, problems);
  }
}

void read_peak_variables(const Getenv& getenv, Config& config, Problems* problems) {
  for (const auto& [name, target] :
       {std::pair{"MFU_PEAK_TFLOPS", &config.peak.tflops}, std::pair{"MFU_PEAK_GBPS", &config.peak.gbps}}) {
    const char* text = value_of(getenv, name);
    if (text == nullptr) continue;
    if (const auto value = positive_number(name, text, problems, "ignored")) *target = value;
  }
}

void check_spelling(const char* const* environ_block, Problems* problems) {
  if (environ_block == nullptr) return;
  constexpr std::size_t kMostLines = 10;
  std::vector<std::string_view> names;
  for (const Variable& variable : kVariables) names.emplace_back(variable.name);
  std::size_t said = 0;
  for (; *environ_block != nullptr && said < kMostLines; ++environ_block) {
    if (std::strncmp(*environ_block, "MFU_", 4) != 0) continue;
    const std::string_view entry(*environ_block);
    const std::string_view name = entry.substr(0, std::min<std::size_t>(entry.find('='), 64));
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    problems->push_back(
        {"", std::string(name), Problem::Kind::kUnknownVariable, "unknown variable" + proposal(name, names), ""});
    ++said;
  }
}

std::string proposal(std::string_view word, std::span<const std::string_view> names) {
  constexpr std::size_t kLongest = 64;  // half as long again as the longest name; a stranger's key has up to 16 MiB
  if (word.size() > kLongest) return "";
  std::string_view best;
  std::size_t least = SIZE_MAX;
  for (std::string_view candidate : names) {
    const std::size_t apart = std::max(word.size(), candidate.size()) - std::min(word.size(), candidate.size());
    if (apart >= least) continue;
    const std::size_t d = edit_distance(word, candidate);
    if (d < least) least = d, best = candidate;
  }
  // A slip of the hand leaves most letters as they are; beyond that the nearest name is any name.
  const std::size_t letters = best.size() - (best.starts_with("MFU_") ? 4 : 0);
  return 2 * least <= letters ? "; did you mean " + std::string(best) + "?" : "";
}

}  // namespace mfu
