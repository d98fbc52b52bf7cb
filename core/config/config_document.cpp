#include "core/config/config_document.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_fields.h"
#include "core/config/config_source.h"

namespace mfu {

using nlohmann::json;

namespace {

bool is_wrapper(const json& root) {
  if (root.contains("model_type") || root.contains("n_layer") || root.contains("layers") || root.contains("params"))
    return false;
  for (const char* key : {"model", "workload", "parallel", "peak", "counting", "regions", "presets"})
    if (root.contains(key)) return true;
  return root.empty();
}

}  // namespace

ConfigDocument::ConfigDocument() : root_(std::make_unique<json>(json::object())) {}
ConfigDocument::ConfigDocument(ConfigDocument&&) noexcept = default;
ConfigDocument& ConfigDocument::operator=(ConfigDocument&&) noexcept = default;
ConfigDocument::~ConfigDocument() = default;

Result<ConfigDocument> read_document(std::string_view source, std::string_view origin, const Getenv& getenv) {
  const std::string prefix = origin.empty() ? std::string() : std::string(origin) + " ";
  Result<ConfigText> text = find_config_text(source, "", getenv);
  if (!text) return Error{prefix + text.error().message};
  ConfigDocument r;
  Result<json> parsed = parse_json(text->text, prefix + text->name);
  if (!parsed) return parsed.error();
  r.place = prefix + text->name + ": ";
  if (!parsed->is_object()) return Error{r.place + "expected a JSON object, got " + brief(*parsed)};
  r.model_source = text->name;
  for (std::string& key : repeated_keys(text->text)) r.repeated.push_back({r.place, std::move(key)});
  if (!is_wrapper(*parsed)) {
    r.root()["model"] = std::move(*parsed);
    r.model_place = r.place;
    return r;
  }
  r.root() = std::move(*parsed);
  r.model_place = r.place + "model.";
  const auto model = r.root().find("model");
  if (model == r.root().end() || model->is_null()) {
    r.root().erase("model");
    r.model_source.clear();
    return r;
  }
  if (model->is_string()) {
    Result<ConfigText> inner = find_config_text(model->get_ref<const std::string&>(), text->folder, getenv);
    if (!inner) return Error{r.place + "model: " + inner.error().message};
    Result<json> inner_json = parse_json(inner->text, prefix + inner->name);
    if (!inner_json) return inner_json.error();
    r.model_place = prefix + inner->name + ": ";
    r.model_source = inner->name;
    for (std::string& key : repeated_keys(inner->text)) r.repeated.push_back({r.model_place, std::move(key)});
    r.root()["model"] = std::move(*inner_json);
  }
  if (!r.root()["model"].is_object()) {
    return Error{r.place + "model: expected a path, a model id or an object, got " + brief(r.root()["model"])};
  }
  return r;
}

}  // namespace mfu
