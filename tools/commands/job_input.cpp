#include "tools/commands/job_input.h"

#include <fmt/format.h>

#include "core/base/say.h"
#include "tools/job/cost.h"
#include "tools/report/outputs/tensorboard.h"
#include "tools/report/rank_notes.h"
#include "tools/report/run_source.h"
#include "tools/run_dir/find_run_dir.h"

namespace mfu {

Result<Job> read_job(const JobInput& input, ProcessWriter* writer, const Complain& complain) {
  const Result<SourceKind> kind = kind_of(input.path);
  if (!kind) return kind.error();
  JobBuilder builder(input.path, *kind == SourceKind::kTraces);
  const auto done = for_each_process(
      {input.path, input.work, input.timelines},
      [&](RunHistory&& history) -> Result<void> {
        if (writer != nullptr) writer->process(history);
        if (!input.tensorboard.empty()) {
          if (auto written = write_tensorboard({history}, input.tensorboard); !written) return written.error();
        }
        builder.add(history);
        return {};
      },
      [&](std::string remark) {
        complain(remark);
        builder.warn({"input", std::move(remark), "", 1});
      });
  if (!done) return done.error();
  Job job = builder.finish();
  const Result<std::optional<double>> price = gpu_hour(input.work.gpu_hour);
  if (!price) return price.error();
  if (*price) price_job(job, **price);
  job.rank_notes = rank_notes(job);
  return job;
}

Result<std::string> one_run(const std::vector<std::string>& paths) {
  Result<std::vector<std::string>> found = find_run_dirs(paths);
  if (!found) return found.error();
  if (found->size() == 1) return std::move(found->front());
  if (paths.empty()) return Error{"several run directories are there: name one"};
  return Error{paths.size() == 2 ? fmt::format("one run at a time; to compare two: mfu compare {} {}",
                                               shell_word(paths[0]), shell_word(paths[1]))
                                 : "one run at a time; the ranks of one job belong into one folder"};
}

std::string wrong_work_options(std::span<const std::string> paths, const WorkOptions& work) {
  if (work.config.empty() && (work.batch || work.seq_len || work.context))
    return "--batch, --seq-len, --context: expected --config beside them";
  if (work.interval.empty()) return {};
  for (const std::string& path : paths)
    if (const Result<SourceKind> kind = kind_of(path); !kind || *kind == SourceKind::kTraces) return {};
  return fmt::format("--interval: is for traces, and {} is the directory of a run, which has its windows",
                     paths.front());
}

void add_work_options(Command& command, WorkOptions& work) {
  command.option("-c,--config", work.config,
                 "of traces, and of runs that had none, the model: HF config.json, its folder, a model id, own config");
  command.option("-i,--interval", work.interval, "of traces: seconds per window; default: what fits its length",
                 {.type = "SECONDS", .between = kAboveZero});
  command.option("--batch", work.batch, "sequences, where config and ranges do not say", {.between = kFromOne});
  command.option("--seq-len", work.seq_len, "tokens per sequence, likewise", {.between = kFromOne});
  command.option("--context", work.context, "tokens already cached per sequence, likewise", {.between = kFromZero});
  command.option("--peak-tflops", work.peak_tflops, "peak to divide by [TFLOP/s]",
                 {.type = "NUMBER", .between = {1e-6, 1e9}});
  command.option("--peak-gbps", work.peak_gbps, "memory bandwidth to divide by [GB/s]",
                 {.type = "NUMBER", .between = {1e-6, 1e9}});
}

void add_price_option(Command& command, std::optional<double>& gpu_hour) {
  command.option("--gpu-hour", gpu_hour,
                 "price of a GPU for an hour: adds what regions and tokens cost; default: MFU_GPU_HOUR",
                 {.type = "PRICE", .between = kAboveZero});
}

Result<std::vector<Assertion>> parse_assertions(const std::vector<std::string>& texts) {
  std::vector<Assertion> assertions;
  for (const std::string& text : texts) {
    Result<Assertion> assertion = parse_assertion(text);
    if (!assertion) return assertion.error();
    assertions.push_back(std::move(*assertion));
  }
  return assertions;
}

int check_assertions(const std::vector<Assertion>& assertions, const Complain& complain,
                     const std::function<Result<Verdict>(const Assertion&)>& check) {
  int code = 0;
  for (const Assertion& assertion : assertions) {
    const Result<Verdict> verdict = check(assertion);
    complain(verdict ? verdict->message : verdict.error().message);
    if (!verdict) return kUsageError;
    if (!verdict->holds) code = 1;
  }
  return code;
}

}  // namespace mfu
