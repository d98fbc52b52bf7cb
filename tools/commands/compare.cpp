// `mfu compare A B`: what differs between two runs, what became of tokens/s and MFU, and where the change comes from.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/printable.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/report/assertion.h"
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
  std::string output, config, interval;
};

void complain(std::string_view message) { fmt::print(stderr, "mfu compare: {}\n", printable_lines(message)); }

int compare_runs(const CompareOptions& o) {
  if (int{o.json} + int{o.markdown} + int{o.html} > 1) {
    complain("one of --json, --markdown and --html at a time");
    return kUsageError;
  }
  std::vector<Assertion> assertions;
  for (const std::string& text : o.asserts) {
    Result<Assertion> assertion = parse_assertion(text);
    if (!assertion) {
      complain(assertion.error().message);
      return kUsageError;
    }
    assertions.push_back(std::move(*assertion));
  }
  const std::array<std::string, 2> paths{o.a, o.b};
  if (const std::string wrong = wrong_trace_options(paths, o.config, o.interval); !wrong.empty()) {
    complain(wrong);
    return kUsageError;
  }
  std::vector<Job> jobs;
  for (const std::string& path : paths) {
    Result<Job> job = read_job({path, o.config, o.interval, "", nullptr}, nullptr, complain);
    if (!job) {
      complain(job.error().message);
      return kFailed;
    }
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
  if (!done) {
    complain(done.error().message);
    return kFailed;
  }
  int code = 0;
  for (const Assertion& assertion : assertions) {
    const Result<Verdict> verdict = check_change(assertion, jobs[0], jobs[1]);
    if (!verdict) {
      complain(verdict.error().message);
      return kUsageError;
    }
    complain(verdict->message);
    if (!verdict->holds) code = kFailed;
  }
  return code;
}

}  // namespace

void add_compare(CommandLine& line) {
  auto options = std::make_shared<CompareOptions>();
  Command command = line.command("compare", "Two runs: what differs, tokens/s, MFU, where the change comes from");
  command.option("A", options->a, "run directory or trace of before").required();
  command.option("B", options->b, "that of after").required();
  command
      .option(
          "--assert", options->asserts,
          "REGION.FIGURE>=CHANGE from A to B, for CI: -3% of A's value, or a difference in its unit; may be repeated")
      .type_name("BOUND")
      .one_value_each();
  command.flag("--json", options->json, "everything");
  command.flag("--markdown", options->markdown, "tables to paste into a pull request");
  command.flag("--html", options->html, "a page");
  command.option("-o,--output", options->output, "where to write; default: stdout").type_name("FILE");
  command.option("-c,--config", options->config,
                 "for traces, the model: HF config.json, its folder, a model id, or an own config");
  command.option("-i,--interval", options->interval, "for traces: seconds per window; default: what fits its length")
      .above_zero()
      .type_name("SECONDS");
  command.footer({"mfu compare main branch", "mfu compare main branch --markdown >> comment.md",
                  "mfu compare main branch --assert 'step.tokens_per_s>=-3%' --assert 'decode.p99_s<=+1ms'"},
                 "0; 1 when a bound does not hold or nothing can be read; 2 for an unknown region or figure");
  command.action([options] {
    int code = kFailed;
    try {
      code = compare_runs(*options);
    } catch (const std::exception& e) {
      complain(e.what());
    }
    return code;
  });
}

}  // namespace mfu
