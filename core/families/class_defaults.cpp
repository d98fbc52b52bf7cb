#include "core/families/class_defaults.h"

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace mfu {
namespace {

using nlohmann::json;

struct ClassDefaults {
  std::string_view type, keys;
};

constexpr ClassDefaults kDefaults[] = {
#include "core/families/class_defaults.inc"
};

}  // namespace

const json& class_defaults(std::string_view model_type) {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: exit order does not matter
  static auto& parsed = *new std::map<std::string, json, std::less<>>;
  const std::lock_guard lock(mutex);
  if (const auto found = parsed.find(model_type); found != parsed.end()) return found->second;
  for (const ClassDefaults& one : kDefaults) {
    if (one.type == model_type) return parsed.emplace(model_type, json::parse(one.keys)).first->second;
  }
  return parsed.emplace(model_type, json::object()).first->second;
}

}  // namespace mfu
