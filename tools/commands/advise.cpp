// `mfu advise DIR|TRACE` says what to do next, and on what evidence; for people, and as JSON for programs.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/say.h"
#include "core/sinks/region_json.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/report/opportunities.h"

namespace mfu {
namespace {

struct AdviseOptions {
  std::vector<std::string> paths;
  bool json = false;
  WorkOptions work;
};

nlohmann::ordered_json json_of(const Job& job, const std::vector<Advice>& found) {
  nlohmann::ordered_json j{{"v", 1}, {"source", job.path}, {"advice", nlohmann::ordered_json::array()}};
  for (const Advice& a : found)
    j["advice"].push_back({{"kind", a.kind},
                           {"region", a.region.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(a.region)},
                           {"evidence", a.evidence},
                           {"action", a.action},
                           {"gain", number_or_null(a.gain)}});
  return j;
}

std::string text_of(const std::vector<Advice>& found) {
  std::string text;
  for (const Advice& a : found) {
    const std::string gain = a.gain ? fmt::format(" Up to {:.2f}x.", *a.gain) : "";
    text += fmt::format("- {}\n  {}\n",
                        fmt::join(wrapped((a.region.empty() ? "" : a.region + ": ") + a.evidence, 118), "\n  "),
                        fmt::join(wrapped(a.action + gain, 118), "\n  "));
  }
  return text.empty() ? "nothing to do: no class of time is 2 % or more of a region, and every figure is known\n"
                      : text;
}

int advise(const AdviseOptions& options) {
  const auto fail = [](std::string_view message, int code) { return say_error("advise", message, code); };
  const Result<std::string> run = one_run(options.paths);
  if (!run) return fail(run.error().message, options.paths.empty() ? 1 : kUsageError);
  if (const std::string wrong = wrong_work_options({&*run, 1}, options.work); !wrong.empty())
    return fail(wrong, kUsageError);
  const Result<Job> job = read_job({*run, options.work, "", nullptr}, nullptr, [&](std::string_view m) { fail(m, 0); });
  if (!job) return fail(job.error().message, 1);
  const std::vector<Advice> found = advice(*job);
  if (options.json)
    say("{}\n", Lines{json_of(*job, found).dump(1, ' ', false, nlohmann::json::error_handler_t::replace)});
  else
    say("{}", Lines{text_of(found)});
  return 0;
}

}  // namespace

void add_advise(CommandLine& line) {
  auto options = std::make_shared<AdviseOptions>();
  Command command = line.command("advise", "What to do next about a run, and on what evidence");
  command.option("run", options->paths,
                 "run directory, trace, or folder of traces; default: MFU_RUN_DIR, else the newest in ./mfu-runs",
                 {.type = "RUN"});
  command.flag("--json", options->json, "for programs: kind, region, evidence, action and gain of each");
  add_work_options(command, options->work);
  command.footer({"mfu advise run", "mfu advise --json run", "mfu advise -c config.json trace.json.gz"},
                 "0; 1 when nothing can be read");
  command.action([options] { return advise(*options); });
}

}  // namespace mfu
