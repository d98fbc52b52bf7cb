#include "core/sinks/sink_tensorboard.h"

#include "core/base/number_text.h"
#include "core/sinks/event_file.h"
#include "core/sinks/sink_text.h"

namespace mfu {
namespace {

std::string file_name(const std::string& directory, const RunInfo& run) {
  std::string host;
  for (const char c : run.host) host.push_back(c == '/' || c == '\0' ? '_' : c);
  return directory + "/" + host + "-" + std::to_string(run.rank) + "-" + std::to_string(run.pid) +
         "/events.out.tfevents." + std::to_string(run.t_ns / kNsPerSecond) + "." + host;
}

std::vector<Scalar> scalars_of(const RegionSummary& r, const std::string& prefix) {
  std::vector<Scalar> scalars;
  const auto add = [&](const std::string& tag, const std::optional<double>& value) {
    if (value) scalars.push_back({prefix + tag, *value});
  };
  add("mfu", possible(r.mfu));
  add("hfu", possible(r.hfu));
  add("mbu", possible(r.mbu));
  add("mfu_busy", possible(r.mfu_busy));
  add("clock_ratio", r.clock_ratio);
  const auto quantiles = [&add](const std::string& tag, const LatencySummary& l) {
    if (l.count == 0) return;
    add(tag + "p50_s", seconds(l.p50_ns));
    add(tag + "p99_s", seconds(l.p99_ns));
  };
  quantiles("", r.latency);
  quantiles("inter_token_", r.inter_token);
  quantiles("prefill_to_decode_", r.prefill_to_decode);
  for (const BatchLatency& b : r.by_batch) quantiles(std::string(word(b.unit)) + "_" + batch_range(b) + "/", b.latency);
  if (r.tokens > 0 && r.window.length_ns() > 0)
    add("tokens_per_s", static_cast<double>(r.tokens) / seconds(r.window.length_ns()));
  if (r.classes_known && r.elapsed_ns > 0) {
    // Without MFU nobody can say what of the matmul time was lost: then the curves are the shares of time alone.
    const std::string curve = prefix + (r.lost ? "lost/" : "time/");
    for (std::size_t c = 0; c < kTimeClasses; ++c) {
      const double share = static_cast<double>(r.time_ns[c]) / static_cast<double>(r.elapsed_ns);
      scalars.push_back({curve + std::string(kTimeClassNames[c]), r.lost ? (*r.lost)[c] : share});
    }
  }
  return scalars;
}

}  // namespace

TensorboardSink::TensorboardSink(const std::string& directory, const RunInfo& run, double bytes_per_day)
    : file_(file_name(directory, run), LineFile::Owner::kOurs), budget_("TensorBoard", bytes_per_day) {
  file_.begins_with(event_file_header(seconds(run.t_ns)));
}

Result<void> TensorboardSink::start(const RunInfo& run) {
  budget_.start(run);
  several_devices_ = run.devices.size() > 1;
  return {};
}

Result<void> TensorboardSink::write(const WindowSummary& window) {
  if (window.so_far) return {};
  try {
    const WindowSummary* now = window.final_run ? budget_.rest() : budget_.take(window);
    return now != nullptr ? write_window(*now) : Result<void>();
  } catch (const std::exception& e) {
    return Error{std::string("window: ") + e.what()};
  }
}

Result<void> TensorboardSink::write_window(const WindowSummary& window) {
  std::string records;
  ++windows_;
  const double end_s = seconds(window.window.end_ns);
  for (const RegionSummary& r : window.regions) {
    const bool total = r.region == "total";
    std::int64_t& instances = instances_[{r.region, r.device}];
    instances += static_cast<std::int64_t>(r.instances);
    std::string prefix = r.region + "/";
    if (several_devices_ && r.device) prefix += "gpu" + std::to_string(*r.device) + "/";
    auto scalars = scalars_of(r, prefix);
    if (total) {
      scalars.push_back({prefix + "overhead", window.self.overhead});
      for (const auto& [counter, count] : window.counters)
        if (counter == "records_dropped") scalars.push_back({prefix + counter, static_cast<double>(count)});
    }
    if (!scalars.empty()) records += scalar_event(end_s, total ? windows_ : instances, scalars);
  }
  budget_.wrote(records.size());
  return file_.append_bytes(records);
}

}  // namespace mfu
