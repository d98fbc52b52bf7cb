#include "tools/commands/config_words.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/ranges/region_rules.h"

namespace mfu {

std::string count_words(double count) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}};
  for (const auto& [unit, word] : kUnits) {
    const double value = count / unit;
    if (value < 0.9995) continue;
    return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, word);
  }
  return fmt::format("{:.0f}", count);
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3 + (number < 0 ? 1u : 0u);) digits.insert(at -= 3, ",");
  return digits;
}

std::string config_words(const Config& config) {
  if (!config.model) return "no model config: times and where they went, no MFU";
  const auto model = nlohmann::json::parse(config.model->model_json(), nullptr, false);
  const auto resolved = nlohmann::json::parse(config.resolved_json, nullptr, false);
  std::string words;
  if (model.is_object()) {
    words = model.value("family", std::string("model"));
    if (const auto params = model.find("params"); params != model.end() && params->is_object()) {
      const double total = params->value("total", 0.0), active = params->value("active", 0.0);
      if (total > 0) words += " " + count_words(total);
      if (active > 0 && active < 0.9 * total) words += fmt::format(" ({} active)", count_words(active));
    }
  }
  if (resolved.is_object()) {
    const auto workload = resolved.value("workload", nlohmann::json::object());
    if (workload.contains("phase") && workload["phase"].is_string())
      words += ", " + workload["phase"].get<std::string>();
    const Shape& shape = config.workload.shape;
    if (shape.batch) words += ", batch " + grouped(*shape.batch);
    if (shape.seq_len) words += fmt::format(", {} tokens", grouped(*shape.seq_len));
  }
  if (const auto dtype = config.peak.dtype ? config.peak.dtype : config.model->dtype(); dtype)
    words += fmt::format(", {} peak{}", name(*dtype),
                         config.peak.tflops ? fmt::format(" {:g} TFLOP/s", *config.peak.tflops) : "");
  else if (config.peak.tflops)
    words += fmt::format(", peak {:g} TFLOP/s", *config.peak.tflops);
  return words + fmt::format(", {} counting", config.model->convention());
}

std::vector<std::string> config_mistakes(const Config& config) {
  std::vector<std::string> lines;
  for (const Problem& problem : config.problems)
    if (problem.kind != Problem::Kind::kUnknownVariable) lines.push_back(problem.line());
  const RegionRules compiled(config.regions, config.presets, lines);
  return lines;
}

std::vector<std::string> unknown_variables(const Config& config) {
  std::vector<std::string> lines;
  for (const Problem& problem : config.problems)
    if (problem.kind == Problem::Kind::kUnknownVariable) lines.push_back(problem.line());
  return lines;
}

}  // namespace mfu
