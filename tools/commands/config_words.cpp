#include "tools/commands/config_words.h"
#include "core/families/architecture_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/number_text.h"
#include "core/ranges/region_rules.h"

namespace mfu {

std::string config_words(const Config& config) {
  if (!config.model)
    return std::string("no model config: ") +
           (config.python ? "MFU by what a PyTorch program's interpreter reports, else " : "") +
           (config.executed ? "HFU, and MFU from below, as far as calls to cuBLAS are seen" : "times alone");
  const auto model = nlohmann::json::parse(model_json(config.model->spec()), nullptr, false);
  const auto resolved = nlohmann::json::parse(config.resolved_json, nullptr, false);
  std::string words;
  if (model.is_object()) {
    words = model.value("family", std::string("model"));
    if (const auto params = model.find("params"); params != model.end() && params->is_object()) {
      const double total = params->value("total", 0.0), active = params->value("active", 0.0);
      if (total > 0) words += " " + count_text(total);
      if (active > 0 && active < 0.9 * total) words += fmt::format(" ({} active)", count_text(active));
    }
    if (model.contains("assumed")) words += " (assumed)";
  }
  if (resolved.is_object()) {
    const auto workload = resolved.value("workload", nlohmann::json::object());
    if (workload.contains("phase") && workload["phase"].is_string())
      words += ", " + workload["phase"].get<std::string>();
    const Shape& shape = config.workload.shape;
    if (shape.batch) words += ", batch " + grouped(static_cast<std::uint64_t>(*shape.batch));
    if (shape.seq_len) words += fmt::format(", {} tokens", grouped(static_cast<std::uint64_t>(*shape.seq_len)));
  }
  if (const auto dtype = config.peak.dtype ? config.peak.dtype : config.model->dtype(); dtype)
    words += fmt::format(", {} peak{}", name(*dtype),
                         config.peak.tflops ? fmt::format(" {:g} TFLOP/s", *config.peak.tflops) : "");
  else if (config.peak.tflops)
    words += fmt::format(", peak {:g} TFLOP/s", *config.peak.tflops);
  words += fmt::format(", {} counting", config.model->convention());
  const std::string share = share_text(config.model->options().parallel, config.model->spec());
  return words + (share.empty() ? "" : ", this rank " + share);
}

std::vector<ConfigMistake> config_mistakes(const Config& config) {
  std::vector<ConfigMistake> mistakes;
  for (const Problem& problem : config.problems) {
    if (problem.kind != Problem::Kind::kUnknownVariable && problem.kind != Problem::Kind::kAssumed &&
        problem.kind != Problem::Kind::kRepeatedKey)
      mistakes.push_back({problem.line(), problem.stands_in_the_way()});
  }
  std::vector<std::string> of_rules;
  const RegionRules compiled(config.regions, config.presets, of_rules);
  for (std::string& line : of_rules) mistakes.push_back({std::move(line), true});
  return mistakes;
}

namespace {

std::vector<std::string> lines_of(const Config& config, Problem::Kind kind) {
  std::vector<std::string> lines;
  for (const Problem& problem : config.problems)
    if (problem.kind == kind) lines.push_back(problem.line());
  return lines;
}

}  // namespace

std::vector<std::string> config_remarks(const Config& config) {
  std::vector<std::string> lines = lines_of(config, Problem::Kind::kAssumed);
  for (std::string& line : lines_of(config, Problem::Kind::kRepeatedKey)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> unknown_variables(const Config& config) {
  return lines_of(config, Problem::Kind::kUnknownVariable);
}

}  // namespace mfu
