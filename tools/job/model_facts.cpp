#include "tools/job/model_facts.h"

#include <nlohmann/json.hpp>

namespace mfu {

ModelFacts model_facts(const RunInfo& run) {
  ModelFacts facts;
  const auto model = nlohmann::json::parse(run.model_json, nullptr, /*allow_exceptions=*/false);
  if (!model.is_object()) return facts;
  if (const auto family = model.find("family"); family != model.end() && family->is_string()) facts.family = *family;
  const nlohmann::json::json_pointer total("/params/total");
  if (model.contains(total) && model.at(total).is_number()) facts.params = model.at(total);
  return facts;
}

}  // namespace mfu
