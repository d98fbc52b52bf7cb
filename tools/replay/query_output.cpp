// The answer to a TraceQuery as JSON and as text.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/sinks/region_json.h"
#include "core/sinks/sink_text.h"
#include "tools/replay/trace_query.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

std::string_view phase_word(const std::optional<Phase>& phase) {
  return !phase                      ? ""
         : *phase == Phase::kTrain   ? "train"
         : *phase == Phase::kPrefill ? "prefill"
         : *phase == Phase::kDecode  ? "decode"
                                     : "";
}

/// `wall_s`, `kernel_sum_s`, `kernel_union_s`, FLOP and the two ratios on each of the three.
void put_figures(Json& to, const BaseFigures& f) {
  Json mfu, rate;
  for (std::size_t b = 0; b < kTimeBaseNames.size(); ++b) {
    const std::string base(kTimeBaseNames[b]);
    to[base + "_s"] = seconds(f.time_ns[b]);
    mfu[base] = number_or_null(f.mfu[b]);
    rate[base] = f.flop_s[b] ? Json(*f.flop_s[b] / 1e12) : Json(nullptr);
  }
  to["kernels"] = f.kernels;
  to["flop"] = number_or_null(f.flop);
  to["mfu_by"] = mfu;
  to["tflop_per_s"] = rate;
  to["suspect"] = f.suspect.empty() ? Json(nullptr) : Json(f.suspect);
}

Json head(const TraceQuery& query, const QueryAnswer& answer) {
  Json j;
  if (!query.range.empty()) {
    j["name"] = query.range;
    j["match"] = query.exact ? "exact" : "contains";
  }
  j["nth"] = query.nth ? Json(*query.nth) : Json(nullptr);
  j["device"] = query.device ? Json(*query.device) : Json(nullptr);
  j["phase"] = query.phase ? Json(phase_word(query.phase)) : Json(nullptr);
  j["devices"] = answer.devices;
  j["gpus"] = answer.gpus;
  j["peak_flop_per_s"] = number_or_null(answer.peak_flop_per_s);
  j["peak_source"] = answer.peak_source;
  j["dtype"] = answer.dtype;
  return j;
}

Json occurrences_json(const QueryAnswer& answer) {
  Json list = Json::array();
  for (const Occurrence& o : answer.occurrences) {
    Json j;
    j["index"] = o.index;
    j["process"] = o.process;
    if (!o.name.empty()) j["name"] = printable(o.name, 200);
    j["t0_ns"] = o.hull.begin_ns;
    j["t1_ns"] = o.hull.end_ns;
    j["devices"] = o.devices;
    put_figures(j, o.figures);
    if (!o.regions.empty()) {
      j["regions"] = Json::array();
      for (const RegionSummary& r : o.regions) j["regions"].push_back(to_json(r));
    }
    list.push_back(std::move(j));
  }
  return list;
}

std::string ms(DurationNs ns) { return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6); }

void print_row(std::string& out, std::string_view what, std::string_view process, const BaseFigures& f) {
  out += fmt::format("  {:<12.12} {:>8.8} {:>8}", what, process, f.kernels);
  for (std::size_t b = 0; b < f.time_ns.size(); ++b)
    out += fmt::format(" {:>12} {:>7}", ms(f.time_ns[b]), percent(f.mfu[b]));
  out += f.flop ? fmt::format(" {:>10.4g}\n", *f.flop) : fmt::format(" {:>10}\n", "-");
}

void print_answer(std::string& out, std::string_view what, const QueryAnswer& answer) {
  out += fmt::format("{}: {} occurrence{} on {} device{}", what, answer.occurrences.size(),
                     answer.occurrences.size() == 1 ? "" : "s", answer.devices, answer.devices == 1 ? "" : "s");
  if (answer.gpus != answer.devices) out += fmt::format(", FLOP of {} GPUs", answer.gpus);
  if (answer.peak_flop_per_s)
    out += fmt::format("; peak {:.4g} TFLOP/s {} each ({})", *answer.peak_flop_per_s / 1e12, answer.dtype,
                       answer.peak_source.substr(0, answer.peak_source.find(';')));
  else
    out += "; peak unknown, set MFU_PEAK_TFLOPS";
  if (answer.flop_per_launch) out += fmt::format("; {:.6g} FLOP a launch", *answer.flop_per_launch);
  out += fmt::format("\n  {:<12} {:>8} {:>8} {:>12} {:>7} {:>12} {:>7} {:>12} {:>7} {:>10}\n", "times in ms", "process",
                     "kernels", "wall", "MFU", "kernel sum", "MFU", "kernel union", "MFU", "FLOP");
  constexpr std::size_t kRows = 20;
  for (std::size_t i = 0; i < std::min(kRows, answer.occurrences.size()); ++i) {
    const Occurrence& o = answer.occurrences[i];
    print_row(out, "#" + std::to_string(o.index), o.process, o.figures);
  }
  if (answer.occurrences.size() > kRows)
    out += fmt::format("  ... and {} more (--json has all)\n", answer.occurrences.size() - kRows);
  if (answer.occurrences.size() > 1) print_row(out, "all", "", answer.sum);
  constexpr std::size_t kColumns = 118;
  for (const std::string& line : wrapped(answer.sum.suspect.empty() ? "" : "suspect: " + answer.sum.suspect, kColumns))
    out += "  " + line + "\n";
  constexpr std::size_t kNames = 8;
  for (std::size_t i = 0; i < std::min(kNames, answer.names.size()); ++i)
    out += fmt::format("  {:>8} x {:>12} ms  {}\n", answer.names[i].count, ms(answer.names[i].sum_ns),
                       printable(answer.names[i].name, 80));
  if (answer.names.size() > kNames)
    out += fmt::format("  ... and {} more kernel names\n", answer.names.size() - kNames);
  for (const std::string& note : answer.notes) out += "  note: " + note + "\n";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> query_json(const TraceQuery& query, const QueryAnswers& answers) {
  std::vector<std::pair<std::string, std::string>> out;
  if (answers.range) {
    Json j = head(query, *answers.range);
    put_figures(j, answers.range->sum);
    if (answers.range->region) j["sum"] = to_json(*answers.range->region);
    j["occurrences"] = occurrences_json(*answers.range);
    j["notes"] = answers.range->notes;
    out.emplace_back("range", text_of(j));
  }
  if (answers.kernel) {
    Json j;
    j["pattern"] = query.kernel;
    j["kind"] = query.kernel_kind.empty() ? Json(nullptr) : Json(query.kernel_kind);
    j["per"] = query.per_pass ? "pass" : "launch";
    j.update(head(query, *answers.kernel));
    j["flop_per_launch"] = number_or_null(answers.kernel->flop_per_launch);
    j["layers"] = answers.kernel->layers ? Json(*answers.kernel->layers) : Json(nullptr);
    put_figures(j, answers.kernel->sum);
    j["names"] = Json::array();
    for (const KernelCount& n : answers.kernel->names)
      j["names"].push_back({{"name", printable(n.name, 200)}, {"count", n.count}, {"sum_s", seconds(n.sum_ns)}});
    j["occurrences"] = occurrences_json(*answers.kernel);
    j["notes"] = answers.kernel->notes;
    out.emplace_back("kernel", text_of(j));
  }
  return out;
}

std::string query_text(const TraceQuery& query, const QueryAnswers& answers) {
  std::string out;
  if (answers.range) {
    print_answer(out, fmt::format("range \"{}\"", printable(query.range, 60)), *answers.range);
    if (answers.range->region) {
      const RegionSummary& r = *answers.range->region;
      out += "  of its elapsed time:";
      for (std::size_t c = 0; c < kTimeClasses; ++c)
        out += fmt::format("{} {} {} ms", c == 0 ? "" : ",", kTimeClassNames[c], ms(r.time_ns[c]));
      out += "\n  as a region: " + region_line(r) + "\n";
    }
  }
  if (answers.kernel) print_answer(out, fmt::format("kernel /{}/", printable(query.kernel, 60)), *answers.kernel);
  return out;
}

}  // namespace mfu
