// `mfu report DIR|TRACE`: a run as a page and in other forms.

#include <memory>
#include <string>
#include <vector>

#include "core/base/number_text.h"
#include "core/base/say.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/commands/output_file.h"
#include "tools/report/escape.h"
#include "tools/report/outputs/csv.h"
#include "tools/report/outputs/json.h"
#include "tools/report/outputs/markdown.h"
#include "tools/report/outputs/perfetto.h"
#include "tools/report/outputs/table.h"
#include "tools/report/page/page.h"

namespace mfu {
namespace {

constexpr int kFailed = 1;

struct ReportOptions {
  std::vector<std::string> paths;
  bool json = false, csv = false, perfetto = false, markdown = false;
  std::vector<std::string> asserts;
  std::string output, tensorboard;
  WorkOptions work;
};

void complain(std::string_view message) { say_error("report", message); }
int fail(std::string_view message, int code) { return say_error("report", message, code); }

int report_one(const ReportOptions& o) {
  const Result<std::vector<Assertion>> assertions = parse_assertions(o.asserts);
  if (!assertions) return fail(assertions.error().message, kUsageError);
  // A check in CI, or files for TensorBoard, want no page beside them unless it is asked for.
  const bool page_wanted = !o.json && !o.csv && !o.perfetto && !o.markdown &&
                           ((assertions->empty() && o.tensorboard.empty()) || !o.output.empty());
  Job job;
  Timelines timelines;
  const auto read = [&](ProcessWriter* writer) -> Result<void> {
    Result<Job> read_one =
        read_job({o.paths.front(), o.work, o.tensorboard, page_wanted ? &timelines : nullptr}, writer, complain);
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
      const auto page = [&](std::ostream& out) -> Result<void> {
        out << run_page(job, MFU_VERSION, {&timelines, 0});
        return {};
      };
      if (page_wanted) done = o.output.empty() ? replace_file(path, PathFrom::kDefault, page) : write_to(path, page);
      if (done && path != "-") {
        if (page_wanted) say("{}\n", path);
        say("{}", Lines{job_text(job)});
      }
    }
  }
  if (!done) return fail(done.error().message, kFailed);
  return check_assertions(*assertions, complain, [&job](const Assertion& a) { return check(a, job); });
}

int report(ReportOptions& options) {
  Result<std::string> run = one_run(options.paths);
  if (!run) return fail(run.error().message, options.paths.empty() ? kFailed : kUsageError);
  options.paths = {std::move(*run)};
  if (int{options.json} + int{options.csv} + int{options.perfetto} + int{options.markdown} > 1)
    return fail("one of --json, --csv, --perfetto and --markdown at a time", kUsageError);
  if (const std::string wrong = wrong_work_options(options.paths, options.work); !wrong.empty())
    return fail(wrong, kUsageError);
  return report_one(options);
}

}  // namespace

void add_report(CommandLine& line) {
  auto options = std::make_shared<ReportOptions>();
  Command command = line.command("report", "A run as a page, as data, or checked against bounds");
  command.option("run", options->paths,
                 "run directory, trace, or folder of traces; default: MFU_RUN_DIR, "
                 "else the newest in ./mfu-runs",
                 {.type = "RUN"});
  command.flag("--json", options->json, "every figure, window and event");
  command.flag("--csv", options->csv, "one row per region and window");
  command.flag("--perfetto", options->perfetto, "Chrome trace for ui.perfetto.dev: windows and counters");
  command.flag("--markdown", options->markdown, "tables to paste");
  command.option("--tensorboard", options->tensorboard,
                 "event files in this folder, one folder in it per process, as MFU_TB_DIR makes them");
  command.option("--assert", options->asserts,
                 "REGION.FIGURE>=NUMBER, for CI; also <=, >, <, ==, !=, and 40% or 25ms; may be repeated",
                 {.type = "BOUND", .one_value_each = true});
  command.option("-o,--output", options->output,
                 "where to write; default: mfu-report.html for the page, stdout for the rest", {.type = "FILE"});
  add_price_option(command, options->work.gpu_hour);
  add_work_options(command, options->work);
  command.footer(
      {"mfu report run", "mfu report -c config.json trace.json.gz -o trace.html", "mfu report --json run > run.json",
       "mfu report run --assert 'step.mfu>=0.40' --assert 'decode.p99_s<25ms'"},
      "0; 1 when a bound does not hold or nothing can be read; 2 for an unknown region or figure");
  command.action([options] { return report(*options); });
}

}  // namespace mfu
