// `mfu report DIR|TRACE [OTHER]`: a run as a page and in other forms; two runs side by side.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/printable.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/report/assertion.h"
#include "tools/report/escape.h"
#include "tools/report/outputs/csv.h"
#include "tools/report/outputs/json.h"
#include "tools/report/outputs/markdown.h"
#include "tools/report/outputs/perfetto.h"
#include "tools/report/outputs/table.h"
#include "tools/report/page/page.h"
#include "tools/run_dir/find_run_dir.h"

namespace mfu {
namespace {

constexpr int kFailed = 1;

struct ReportOptions {
  std::vector<std::string> paths;
  bool json = false, csv = false, perfetto = false, markdown = false;
  std::vector<std::string> asserts;
  std::string output, config, interval, tensorboard;
};

void complain(std::string_view message) { fmt::print(stderr, "mfu report: {}\n", printable_lines(message)); }

int report_one(const ReportOptions& o) {
  std::vector<Assertion> assertions;
  for (const std::string& text : o.asserts) {
    Result<Assertion> assertion = parse_assertion(text);
    if (!assertion) {
      complain(assertion.error().message);
      return kUsageError;
    }
    assertions.push_back(std::move(*assertion));
  }
  // A check in CI, or files for TensorBoard, want no page beside them unless it is asked for.
  const bool page_wanted = !o.json && !o.csv && !o.perfetto && !o.markdown &&
                           ((assertions.empty() && o.tensorboard.empty()) || !o.output.empty());
  Job job;
  Timelines timelines;
  const auto read = [&](ProcessWriter* writer) -> Result<void> {
    Result<Job> read_one = read_job(
        {o.paths.front(), o.config, o.interval, o.tensorboard, page_wanted ? &timelines : nullptr}, writer, complain);
    if (!read_one) return read_one.error();
    job = std::move(*read_one);
    if (writer != nullptr) writer->finish(job);
    return {};
  };
  const auto streamed = [&](auto make_writer) {
    return write_to(o.output, [&](std::ostream& out) {
      auto writer = make_writer(out);
      return read(&writer);
    });
  };
  Result<void> done;
  if (o.json) {
    done = streamed([](std::ostream& out) { return JsonWriter(out); });
  } else if (o.csv) {
    done = streamed([](std::ostream& out) { return CsvWriter(out); });
  } else if (o.perfetto) {
    done = streamed([](std::ostream& out) { return PerfettoWriter(out); });
  } else {
    done = read(nullptr);
    if (done && o.markdown) {
      done = write_to(o.output, [&](std::ostream& out) -> Result<void> {
        out << job_markdown(job);
        return {};
      });
    } else if (done) {
      const std::string path = o.output.empty() ? "mfu-report.html" : o.output;
      if (page_wanted)
        done = write_to(path, [&](std::ostream& out) -> Result<void> {
          out << run_page(job, MFU_VERSION, {&timelines, 0});
          return {};
        });
      if (done && path != "-") fmt::print("{}{}", page_wanted ? path + "\n" : "", printable_lines(job_text(job)));
    }
  }
  if (!done) {
    complain(done.error().message);
    return kFailed;
  }
  int code = 0;
  for (const Assertion& assertion : assertions) {
    const Result<Verdict> verdict = check(assertion, job);
    if (!verdict) {
      complain(verdict.error().message);
      return kUsageError;
    }
    fmt::print(stderr, "mfu report: {}\n", printable_lines(verdict->message));
    if (!verdict->holds) code = kFailed;
  }
  return code;
}

int report(ReportOptions& options) {
  if (options.paths.empty()) {
    Result<std::vector<std::string>> found = find_run_dirs({});
    if (!found || found->size() != 1) {
      complain(found ? "several run directories are there: name one" : found.error().message);
      return found ? kUsageError : kFailed;
    }
    options.paths = std::move(*found);
  }
  if (options.paths.size() > 1) {
    complain(options.paths.size() == 2 ? fmt::format("one run at a time; to compare two: mfu compare {} {}",
                                                     options.paths[0], options.paths[1])
                                       : "one run at a time; the ranks of one job belong into one folder");
    return kUsageError;
  }
  if (int{options.json} + int{options.csv} + int{options.perfetto} + int{options.markdown} > 1) {
    complain("one of --json, --csv, --perfetto and --markdown at a time");
    return kUsageError;
  }
  if (const std::string wrong = wrong_trace_options(options.paths, options.config, options.interval); !wrong.empty()) {
    complain(wrong);
    return kUsageError;
  }
  try {
    return report_one(options);
  } catch (const std::exception& e) {
    complain(e.what());
    return kFailed;
  }
}

}  // namespace

void add_report(CommandLine& line) {
  auto options = std::make_shared<ReportOptions>();
  Command command = line.command("report", "A run as a page, as data, or checked against bounds");
  command
      .option("run", options->paths,
              "run directory, trace, or folder of traces; default: MFU_RUN_DIR, "
              "else the newest in ./mfu-runs")
      .type_name("RUN");
  command.flag("--json", options->json, "every figure, window and event");
  command.flag("--csv", options->csv, "one row per region and window");
  command.flag("--perfetto", options->perfetto, "Chrome trace for ui.perfetto.dev: windows and counters");
  command.flag("--markdown", options->markdown, "tables to paste");
  command.option("--tensorboard", options->tensorboard,
                 "event files in this folder, one folder in it per process, as MFU_TB_DIR makes them");
  command
      .option("--assert", options->asserts,
              "REGION.FIGURE>=NUMBER, for CI; also <=, >, <, ==, !=, and 40% or 25ms; may be repeated")
      .type_name("BOUND")
      .one_value_each();
  command
      .option("-o,--output", options->output,
              "where to write; default: mfu-report.html for the page, stdout for the rest")
      .type_name("FILE");
  command.option("-c,--config", options->config,
                 "for traces, the model: HF config.json, its folder, a model id, or an own config");
  command.option("-i,--interval", options->interval, "for traces: seconds per window; default: what fits its length")
      .above_zero()
      .type_name("SECONDS");
  command.footer(
      {"mfu report run", "mfu report -c config.json trace.json.gz -o trace.html", "mfu report --json run > run.json",
       "mfu report run --assert 'step.mfu>=0.40' --assert 'decode.p99_s<25ms'"},
      "0; 1 when a bound does not hold or nothing can be read; 2 for an unknown region or figure");
  command.action([options] { return report(*options); });
}

}  // namespace mfu
