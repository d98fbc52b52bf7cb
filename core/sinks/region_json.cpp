#include "core/sinks/region_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/sinks/run_fields.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

/// The facts that decide whether a field is null.
struct Context {
  bool device_seen = true;
};

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json json_of(const LatencySummary& l, std::string_view key) {
  if (l.count == 0) return nullptr;
  const std::string suffix(quantile_suffix(key));
  Json j;
  j["count"] = l.count;
  j["p50" + suffix] = seconds(l.p50_ns);
  j["p90" + suffix] = seconds(l.p90_ns);
  j["p99" + suffix] = seconds(l.p99_ns);
  j["max" + suffix] = seconds(l.max_ns);
  j["histogram"] = Json::array();
  for (const auto& [upper_ns, count] : l.histogram) j["histogram"].push_back({seconds(upper_ns), count});
  return j;
}

template <typename Number>
Json json_of_number(Number value, Unit unit) {
  if constexpr (std::is_floating_point_v<Number>) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  } else {
    return unit == Unit::kSeconds ? Json(seconds(value)) : Json(value);
  }
}

template <typename T>
Json object_of(const T& object, const Context& context);

template <typename Get, typename T>
Json json_of(const Field<Get>& field, const T& value, const Context& context) {
  const bool known = field.null != Null::kNoDeviceActivity || context.device_seen;
  if constexpr (kIsByClass<T>) {
    Json j;
    for (std::size_t c = 0; c < kTimeClasses; ++c) {
      Json& entry = j[std::string(kTimeClassNames[c])];
      if constexpr (std::is_same_v<T, ClassTimes>)
        entry = known ? json_of_number(value[c], field.unit) : Json(nullptr);
      else
        entry = known && value ? json_of_number((*value)[c], field.unit) : Json(nullptr);
    }
    return j;
  } else {
    if (!known) return nullptr;
    if constexpr (std::is_same_v<T, LatencySummary>) {
      return json_of(value, field.key);
    } else if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_arithmetic_v<T>) {
      return json_of_number(value, field.unit);
    } else if constexpr (std::is_enum_v<T>) {
      return word(value).empty() ? Json(nullptr) : Json(std::string(word(value)));
    } else if constexpr (std::is_same_v<T, std::string>) {
      return value.empty() && field.null == Null::kUnknown ? Json(nullptr) : Json(value);
    } else if constexpr (requires { value.has_value(); }) {
      return value ? json_of(field, *value, context) : Json(nullptr);
    } else if constexpr (kHasFields<T>) {
      return object_of(value, context);
    } else if constexpr (std::is_same_v<typename T::value_type, std::pair<std::string, std::string>>) {
      Json j = Json::object();
      for (const auto& [key, text] : value) j[key] = text;
      return j;
    } else {
      Json j = Json::array();
      for (const auto& entry : value) j.push_back(object_of(entry, context));
      return j;
    }
  }
}

template <typename T>
bool nothing_to_say(const T& value) {
  if constexpr (requires { value.has_value(); })
    return !value.has_value();
  else if constexpr (requires { value.empty(); })
    return value.empty();
  else
    return false;
}

template <typename T>
Json object_of(const T& object, const Context& context) {
  Json j;
  for_each_field<T>([&](const auto& field) {
    const auto& value = field.of(object);
    if (field.null != Null::kAbsent || !nothing_to_say(value))
      j[std::string(field.key)] = json_of(field, value, context);
  });
  return j;
}

Json parsed(const std::string& text) {
  Json j = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return j.is_discarded() ? Json(nullptr) : j;
}

}  // namespace

std::string text_of(const Json& json) { return printable(json.dump(-1, ' ', false, Json::error_handler_t::replace)); }

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json to_json(const RegionSummary& row) { return object_of(row, Context{row.classes_known}); }

Json to_json(const SelfCost& self) { return object_of(self, {}); }

Json to_json(const Stall& stall) { return object_of(stall, {}); }

Json to_json(const std::vector<TrustState>& trust) {
  Json j = Json::object();
  for (const TrustState& state : trust)
    j[state.name] = {{"holds", state.holds ? Json(*state.holds) : Json(nullptr)}, {"against", state.against}};
  return j;
}

Json to_json(const RunInfo& run) {
  Json j = object_of(run, {});
  j["began_ns"] = run.began_ns != 0 ? Json(run.began_ns) : Json(nullptr);
  j["job"] = run.job_id.empty() ? Json(nullptr) : Json{{"id", run.job_id}, {"restart", run.restart}};
  j["cupti"] = {{"path", text_or_null(run.cupti_path)}, {"version", run.cupti_version}, {"level", run.level}};
  j["config"] = parsed(run.config_json);
  j["model"] = parsed(run.model_json);
  j["convention"] = text_or_null(run.convention);
  j["trace"] = text_or_null(run.trace);
  return j;
}

Json to_json(const WindowSummary& window) {
  Json j;
  j["t0_ns"] = window.window.begin_ns;
  j["t1_ns"] = window.window.end_ns;
  j["regions"] = Json::array();
  for (const RegionSummary& region : window.regions) j["regions"].push_back(to_json(region));
  j["launches"] = object_of(window.launches, {});
  if (const auto& g = window.graphs)
    j["graphs"] = {{"s", g->s}, {"known_s", g->known_s}, {"error", g->error}, {"error_of", "whole_launches"}};
  j["self"] = to_json(window.self);
  j["counters"] = Json::object();
  for (const auto& [counter, count] : window.counters) j["counters"][counter] = count;
  if (!window.trust.empty()) j["trust"] = to_json(window.trust);
  return j;
}

}  // namespace mfu
