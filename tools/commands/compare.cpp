// `mfu compare A B`: differences between two runs, changes of tokens/s and MFU, and where they come from.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/base/say.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/commands/output_file.h"
#include "tools/report/compare.h"
#include "tools/report/escape.h"
#include "tools/report/page/page.h"

namespace mfu {
namespace {

constexpr int kFailed = 1;

struct CompareOptions {
  std::string a, b;
  bool json = false, markdown = false, html = false;
  std::vector<std::string> asserts;
  std::string output;
  WorkOptions work;
};

void complain(std::string_view message) { say_error("compare", message); }
int refuse(std::string_view message, int code) { return say_error("compare", message, code); }

int compare_runs(const CompareOptions& o) {
  if (int{o.json} + int{o.markdown} + int{o.html} > 1)
    return refuse("one of --json, --markdown and --html at a time", kUsageError);
  const Result<std::vector<Assertion>> assertions = parse_assertions(o.asserts);
  if (!assertions) return refuse(assertions.error().message, kUsageError);
  const std::array<std::string, 2> paths{o.a, o.b};
  if (const std::string wrong = wrong_work_options(paths, o.work); !wrong.empty()) return refuse(wrong, kUsageError);
  std::vector<Job> jobs;
  for (const std::string& path : paths) {
    Result<Job> job = read_job({path, o.work, "", nullptr}, nullptr, complain);
    if (!job) return refuse(job.error().message, kFailed);
    jobs.push_back(std::move(*job));
  }
  const Comparison comparison = compare(jobs[0], jobs[1]);
  const auto done = write_to(o.output, [&](std::ostream& out) -> Result<void> {
    if (o.json)
      out << comparison_json(comparison) << "\n";
    else if (o.markdown)
      out << comparison_markdown(comparison);
    else if (o.html)
      out << compare_page(comparison, MFU_VERSION);
    else
      out << printable_lines(comparison_text(comparison));
    return {};
  });
  if (!done) return refuse(done.error().message, kFailed);
  return check_assertions(*assertions, complain, [&](const Assertion& a) { return check_change(a, jobs[0], jobs[1]); });
}

}  // namespace

void add_compare(CommandLine& line) {
  auto options = std::make_shared<CompareOptions>();
  Command command = line.command("compare", "Two runs: what differs, tokens/s, MFU, where the change comes from");
  command.option("A", options->a, "run directory or trace of before", {.required = true});
  command.option("B", options->b, "that of after", {.required = true});
  command.option(
      "--assert", options->asserts,
      "REGION.FIGURE>=CHANGE from A to B, for CI: -3% of A's value, or a difference in its unit; may be repeated",
      {.type = "BOUND", .one_value_each = true});
  command.flag("--json", options->json, "everything");
  command.flag("--markdown", options->markdown, "tables to paste into a pull request");
  command.flag("--html", options->html, "a page");
  command.option("-o,--output", options->output, "where to write; default: stdout", {.type = "FILE"});
  add_work_options(command, options->work);
  add_price_option(command, options->work.gpu_hour);
  command.footer({"mfu compare main branch", "mfu compare main branch --markdown >> comment.md",
                  "mfu compare main branch --assert 'step.tokens_per_s>=-3%'"},
                 "0; 1 when a bound does not hold or nothing can be read; 2 for an unknown region or figure");
  command.action([options] { return compare_runs(*options); });
}

}  // namespace mfu
