#include "core/families/class_defaults.h"

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace mfu {

// A line per model type: the type, and what its class takes as defaults, as JSON.
std::string_view embedded_class_defaults() noexcept;

using nlohmann::json;

const json& class_defaults(std::string_view model_type) {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: exit order does not matter
  static auto& parsed = *new std::map<std::string, json, std::less<>>;
  const std::lock_guard lock(mutex);
  if (const auto found = parsed.find(model_type); found != parsed.end()) return found->second;
  // A line of the list is the type, a space, and an object.
  const std::string_view list = embedded_class_defaults();
  const std::string start = "\n" + std::string(model_type) + " {";
  const std::size_t line = list.find(start);
  if (line == std::string_view::npos) return parsed.emplace(model_type, json::object()).first->second;
  const std::string_view keys = list.substr(line + start.size() - 1);
  return parsed.emplace(model_type, json::parse(keys.substr(0, keys.find('\n')))).first->second;
}

}  // namespace mfu
