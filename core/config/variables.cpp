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

template <typename T>
T GivenVariable::word(std::initializer_list<std::pair<std::string_view, T>> words) const {
  std::string expected;
  for (const auto& [word, value] : words) {
    if (text == word) return value;
    const bool last = word == std::rbegin(words)->first;
    expected.append(expected.empty() ? "" : last ? " or " : ", ").append(word);
  }
  wrong(expected, "using " + std::string(words.begin()->first));
  return words.begin()->second;
}

namespace {

using Problems = std::vector<Problem>;

std::string quoted(std::string_view value) { return "\"" + std::string(value.substr(0, 60)) + "\""; }

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

void read_interval(const GivenVariable& given, Config& config) {
  const auto use = [](const ShownNumber& instead) { return std::string("using ") + instead.text; };
  config.interval_s = given.positive_number(use(kDefaultInterval)).value_or(kDefaultInterval.value);
  for (const auto& [limit, word, beyond] :
       {std::tuple(kLeastInterval, "at least ", -1), {kMostInterval, "at most ", 1}}) {
    if ((config.interval_s - limit.value) * beyond <= 0) continue;
    given.wrong(word + std::string(limit.text) + " s", use(limit));
    config.interval_s = limit.value;
  }
}

void read_log_every(const GivenVariable& given, Config& config) {
  const std::optional<std::int64_t> every = parse_whole_number(given.text);
  if (!every) given.wrong("a whole number >= 0", "using 1");
  config.log.every = every.value_or(1);
}

void read_run_dir_limit(const GivenVariable& given, Config& config) {
  config.run_dir_limit_mb = 0;
  if (given.text == "none") return;
  config.run_dir_limit_mb = given.positive_number("using 100").value_or(100);
  if (config.run_dir_limit_mb < 1) {
    given.wrong("at least 1 MB a day, or none", "using 1");
    config.run_dir_limit_mb = 1;
  }
  config.run_dir_limit_mb = std::min(config.run_dir_limit_mb, 1e9);
}

void read_log(const GivenVariable& given, Config& config) {
  const bool is_word = given.text == "stderr" || given.text == "stdout" || given.text == "none";
  config.log.target = is_word ? std::string(given.text) : expand_path(given.text, config, given.getenv);
}

void read_trace(const GivenVariable& given, Config& config) {
  config.trace = expand_path(given.text, config, given.getenv);
  if (config.trace.ends_with(".gz")) given.wrong("a name without .gz, since a recording is not compressed", "using it");
}

void read_detect(const GivenVariable& given, Config& config) {
  config.explain_detection = given.text == "explain";
  config.detect = config.explain_detection || given.flag("using 1", "1, 0 or explain").value_or(true);
}

template <bool Config::*setting>
void read_flag(const GivenVariable& given, Config& config) {
  config.*setting = given.flag("using 0").value_or(false);
}

template <std::string Config::*setting>
void read_path(const GivenVariable& given, Config& config) {
  config.*setting = expand_path(given.text, config, given.getenv);
}

constexpr Variable kVariables[] = {
    {"MFU_MODEL_CONFIG", "none",
     "Hugging Face config.json, its folder, a model id in the local cache, an own config, or inline JSON", nullptr},
    {"MFU_SET", "none", "overrides: workload.batch=8,peak.dtype=fp8", nullptr},
    {"MFU_INTERVAL", kDefaultInterval.text, "seconds per window", read_interval},
    {"MFU_RUN_DIR", "none", "the run directory; %h %p %r %q{VAR} expand to host, pid, rank, a variable",
     read_path<&Config::run_dir>},
    {"MFU_RUN_DIR_LIMIT", "100", "MB a day that each output of a process has at most; none: no limit",
     read_run_dir_limit},
    {"MFU_TB_DIR", "none", "TensorBoard event files", read_path<&Config::tb_dir>},
    {"MFU_LOG", "stderr", "stderr, stdout, none or a file", read_log},
    {"MFU_LOG_RANKS", "0", "all: every rank logs",
     [](const GivenVariable& v, Config& c) {
       c.log.all_ranks = v.word<bool>({{"0", false}, {"all", true}});
     }},
    {"MFU_LOG_EVERY", "1", "log every so many-th window only; 0: the table alone", read_log_every},
    {"MFU_LOG_FORMAT", "text", "text, or json: the lines of the run directory",
     [](const GivenVariable& v, Config& c) {
       c.log.json = v.word<bool>({{"text", false}, {"json", true}});
     }},
    {"MFU_COMPONENTS", "0", "1: log each region's matmuls by what they compute",
     [](const GivenVariable& v, Config& c) { c.log.components = v.flag("using 0").value_or(false); }},
    {"MFU_PEAK_TFLOPS", "the table", "the device's peak, always [1e12 FLOP/s]", nullptr},
    {"MFU_PEAK_GBPS", "the table", "the device's memory bandwidth, always [1e9 B/s]", nullptr},
    {"MFU_PROFILER", "own", "own or share CUPTI's one subscriber slot",
     [](const GivenVariable& v, Config& c) {
       c.profiler = v.word<ProfilerPolicy>({{"own", ProfilerPolicy::kOwn}, {"share", ProfilerPolicy::kShare}});
     }},
    {"MFU_GRAPHS", "auto",
     "auto: a launch of a CUDA graph is timed as a whole and split by what its kernels take elsewhere; node: every "
     "kernel is timed; graph: each launch as a whole",
     [](const GivenVariable& v, Config& c) {
       c.graphs = v.word<GraphTracing>(
           {{"auto", GraphTracing::kAuto}, {"node", GraphTracing::kNode}, {"graph", GraphTracing::kGraph}});
     }},
    {"MFU_CUPTI", "searched", "the libcupti to open", [](const GivenVariable& v, Config& c) { c.cupti_path = v.text; }},
    {"MFU_CUPTI_V2", "0", "1: allow other subscribers of CUPTI 13.3 and newer beside this library",
     read_flag<&Config::cupti_v2>},
    {"MFU_TRACE", "none", "a file that gets the last seconds of the run as a trace", read_trace},
    {"MFU_TRACE_SECONDS", "60", "seconds that a trace covers",
     [](const GivenVariable& v, Config& c) {
       c.trace_seconds = std::min(v.positive_number("using 60").value_or(60), 1e6);
     }},
    {"MFU_DETECT", "1", "0: do not look for steps where no range names any; explain: say why each is taken or refused",
     read_detect},
    {"MFU_PYTHON", "1", "0: do not ask the Python interpreter what the program does",
     [](const GivenVariable& v, Config& c) { c.python = v.flag("using 1").value_or(true); }},
    {"MFU_PARTS", "none", "layers: a region for each layer of a model, and for its backward pass",
     [](const GivenVariable& v, Config& c) {
       c.layers = v.word<bool>({{"none", false}, {"layers", true}});
     }},
    {"MFU_ENERGY", "1", "0: do not read the GPUs' energy counters", read_flag<&Config::energy>},
    {"MFU_GPU_HOUR", "none", "price of a GPU for an hour, for mfu report", nullptr},
    {"MFU_IDLE", "1", "0: do not look at what the program does while the GPU is idle", read_flag<&Config::idle>},
    {"MFU_STALL", "30", "seconds without an end of launched work that are worth a line; 0: never",
     [](const GivenVariable& v, Config& c) {
       c.stall_s = v.text == "0" ? 0 : std::min(v.positive_number("using 30").value_or(30), 1e6);
     }},
    {"MFU_EXECUTED", "1", "0: do not look at the program's calls to cuBLAS", read_flag<&Config::executed>},
    {"MFU_DISABLE", "unset", "1: load, do nothing", read_flag<&Config::disabled>},
};

}  // namespace

void GivenVariable::wrong(const std::string& expected, std::string instead) const {
  problems->push_back(
      {"", name, Problem::Kind::kValue, "expected " + expected + ", got " + quoted(text), std::move(instead)});
}

std::optional<double> GivenVariable::positive_number(std::string instead) const {
  const std::optional<double> value = parse_number(text);
  if (value && *value > 0) return value;
  wrong("a number > 0", std::move(instead));
  return std::nullopt;
}

std::optional<bool> GivenVariable::flag(std::string instead, const std::string& expected) const {
  if (text == "1" || text == "true") return true;
  if (text == "0" || text == "false") return false;
  wrong(expected, std::move(instead));
  return std::nullopt;
}

std::span<const Variable> variables() noexcept { return kVariables; }

void read_variables(const Getenv& getenv, Config& config, Problems* problems) {
  config.host = host_name();
  static_cast<LauncherFacts&>(config) = read_launcher(getenv);
  for (const auto& [name, value] : config.unusable)
    problems->push_back(
        {"", name, Problem::Kind::kValue, "expected a whole number, got \"" + value.substr(0, 100) + "\"", "ignored"});
  for (const Variable& variable : kVariables) {
    const char* value = variable.read != nullptr ? value_of(getenv, variable.name) : nullptr;
    if (value != nullptr) variable.read({variable.name, value, getenv, problems}, config);
  }
}

void read_peak_variables(const Getenv& getenv, Config& config, Problems* problems) {
  for (const auto& [name, target] :
       {std::pair{"MFU_PEAK_TFLOPS", &config.peak.tflops}, std::pair{"MFU_PEAK_GBPS", &config.peak.gbps}}) {
    const char* text = value_of(getenv, name);
    if (text == nullptr) continue;
    if (const auto value = GivenVariable{name, text, getenv, problems}.positive_number("ignored")) *target = value;
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
