#include "core/config/resolved.h"
#include "core/families/architecture_json.h"

#include <nlohmann/json.hpp>

#include "core/config/enum_words.h"
#include "core/model/architecture.h"

namespace mfu {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson shape_json(const Shape& shape) {
  OrderedJson j = OrderedJson::object();
  for (const auto& [key, value] : kShapeKeys)
    if (shape.*value) j[key] = *(shape.*value);
  return j;
}

}  // namespace

std::string resolved_json(const Config& c, const FlopsOptions& o) {
  OrderedJson j = OrderedJson::object();
  j["model_source"] = c.model_source;
  OrderedJson workload = shape_json(c.workload.shape);
  if (c.workload.phase) workload["phase"] = word_of(kPhaseWords, *c.workload.phase);
  workload["grad_accum"] = c.workload.grad_accum;
  if (o.documents > 1) workload["documents"] = o.documents;
  workload["recompute"] = word_of(kRecomputeWords, o.recompute);
  j["workload"] = workload;
  j["parallel"] = {{"tp", o.parallel.tp},
                   {"pp", o.parallel.pp},
                   {"cp", o.parallel.cp},
                   {"ep", o.parallel.ep},
                   {"dp", o.parallel.dp}};
  if (c.model)
    if (const std::string share = share_text(o.parallel, c.model->spec()); !share.empty())
      j["parallel"]["this_rank"] = share;
  OrderedJson peak = {{"sparse", c.peak.sparse}};
  if (c.peak.dtype) peak["dtype"] = name(*c.peak.dtype);
  if (c.peak.tflops) peak["tflops"] = *c.peak.tflops;
  if (c.peak.gbps) peak["gbps"] = *c.peak.gbps;
  j["peak"] = peak;
  j["counting"] = {{"convention", name(o.convention)}, {"attention", name(o.attention)}};
  OrderedJson rules = OrderedJson::array();
  for (const RegionRule& rule : c.regions) {
    OrderedJson entry = {{"region", rule.region}, {"match", rule.match}};
    if (rule.domain) entry["domain"] = *rule.domain;
    if (rule.payload) entry["payload"] = *rule.payload;
    if (rule.phase) entry["phase"] = word_of(kPhaseWords, *rule.phase);
    const OrderedJson constants = shape_json(rule.constants);
    for (const auto& item : constants.items()) entry[item.key()] = item.value();
    rules.push_back(std::move(entry));
  }
  j["regions"] = rules;
  j["presets"] = c.presets;
  j["interval_s"] = c.interval_s;
  // The model comes as text; the rest is an object that is not empty.
  const std::string rest = j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return "{\"model\":" + (c.model ? spec_json(c.model->spec()) : std::string("null")) + "," + rest.substr(1);
}

}  // namespace mfu
