#include "tools/replay/trace_detect.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "core/drain/detected_regions.h"
#include "tools/replay/trace_launches.h"

namespace mfu {
namespace {

class Boundaries final : public StepListener {
 public:
  explicit Boundaries(std::vector<StepBoundary>& into) : into_(into) {}
  void on_boundary(const StepBoundary& boundary) override { into_.push_back(boundary); }

 private:
  std::vector<StepBoundary>& into_;
};

class Considered final : public DetectionLog {
 public:
  explicit Considered(std::vector<DetectedSteps::Considered>& into) : into_(into) {}
  void say(LaunchPosition at, std::string_view text) override { into_.push_back({at, std::string(text)}); }

 private:
  std::vector<DetectedSteps::Considered>& into_;
};

}  // namespace

std::vector<DetectedSteps> detect_steps(const Trace& trace, bool explain) {
  std::vector<DetectedSteps> out;
  for (const DeviceLaunches& device : trace_launches(trace)) {
    DetectedSteps& found = out.emplace_back();
    found.process = trace.processes[device.process].name;
    found.trace = trace.path;
    found.device = raw(trace.devices[device.device].id);
    found.launches = device.launches.size();
    Boundaries boundaries(found.boundaries);
    Considered considered(found.explained);
    StepDetector detector(boundaries, 0, explain ? &considered : nullptr);
    for (const Launch& launch : device.launches) detector.add(launch);
    detector.finish();
    // The list is of launches at which the next step begins or other work does.
    if (!found.boundaries.empty() && found.boundaries.back().last) found.boundaries.pop_back();
    found.findings = detector.findings();
  }
  return out;
}

std::string detected_json(const std::vector<DetectedSteps>& detected) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const DetectedSteps& d : detected) {
    const StepFindings& f = d.findings;
    nlohmann::ordered_json boundaries = nlohmann::ordered_json::array();
    for (const StepBoundary& b : d.boundaries) boundaries.push_back({{"launch", b.launch}, {"t_ns", b.at_ns}});
    nlohmann::ordered_json entry{{"trace", d.trace},
                                 {"process", d.process},
                                 {"device", d.device},
                                 {"kind", name(f.kind)},
                                 {"period", nullptr},
                                 {"confidence", name(f.confidence)},
                                 {"rule", name(f.rule)},
                                 {"micro_steps", f.micro_steps},
                                 {"micro_step_launches", f.micro_step_launches},
                                 {"launches", d.launches},
                                 {"boundaries", std::move(boundaries)}};
    if (!d.explained.empty()) {
      nlohmann::ordered_json lines = nlohmann::ordered_json::array();
      for (const auto& [launch, line] : d.explained) lines.push_back({{"launch", launch}, {"text", line}});
      entry["explain"] = std::move(lines);
    }
    if (f.period_launches != 0) entry["period"] = f.period_launches;
    all.push_back(std::move(entry));
  }
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string detected_text(const std::vector<DetectedSteps>& detected) {
  std::string text;
  auto out = std::back_inserter(text);
  for (const DetectedSteps& d : detected) {
    const StepFindings& f = d.findings;
    if (!d.explained.empty()) fmt::format_to(out, "process {} gpu{}, what was considered:\n", d.process, d.device);
    for (const auto& [launch, line] : d.explained) fmt::format_to(out, "  launch {:>9}: {}\n", launch, line);
    fmt::format_to(out, "process {} gpu{}: ", d.process, d.device);
    if (f.confidence == StepConfidence::kNotSure) {
      fmt::format_to(out, "{} (in {} launches)\n", sentence(f), d.launches);
      continue;
    }
    text += sentence(f);
    fmt::format_to(out, "\n  {:>12} {:>20} {:>12} {:>10}\n", "launch", "t_ns", "ms", "launches");
    for (std::size_t i = 0; i < d.boundaries.size(); ++i) {
      const StepBoundary& b = d.boundaries[i];
      fmt::format_to(out, "  {:>12} {:>20}", b.launch, b.at_ns);
      if (i + 1 < d.boundaries.size())
        fmt::format_to(out, " {:>12.3f} {:>10}", static_cast<double>(d.boundaries[i + 1].at_ns - b.at_ns) / 1e6,
                       d.boundaries[i + 1].launch - b.launch);
      text += '\n';
    }
  }
  return text;
}

}  // namespace mfu
