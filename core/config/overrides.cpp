#include "core/config/overrides.h"

#include <nlohmann/json.hpp>

#include "core/base/json_fields.h"

namespace mfu {
namespace {

using nlohmann::json;

constexpr int kDeepest = 8;  ///< keys in a key; the config has three

/// The value that `key` names, made where it is missing. nullptr: below a plain value, or too deep.
json* place_of(json& root, std::string_view key) {
  json* place = &root;
  for (int depth = 0; depth < kDeepest; ++depth) {
    if (place->is_null()) *place = json::object();
    if (!place->is_object()) return nullptr;
    const std::size_t dot = key.find('.');
    place = &(*place)[std::string(key.substr(0, dot))];
    if (dot == std::string_view::npos) return place;
    key.remove_prefix(dot + 1);
  }
  return nullptr;
}

}  // namespace

std::vector<Override> parse_overrides(std::string_view text, std::string_view origin, std::vector<Problem>* problems) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view piece = text.substr(0, comma);
    if (piece.find('=') == std::string_view::npos && !pieces.empty()) {
      pieces.back() += "," + std::string(piece);  // a comma inside a value
    } else if (!piece.empty()) {
      pieces.emplace_back(piece);
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  std::vector<Override> overrides;
  for (const std::string& piece : pieces) {
    const std::size_t equals = piece.find('=');
    const std::string key = piece.substr(0, equals);
    if (equals == std::string::npos || key.empty() || key.front() == '.' || key.back() == '.' ||
        key.find("..") != std::string::npos) {
      problems->push_back({std::string(origin) + ": ", "", Problem::Kind::kValue,
                           "expected key=value such as workload.batch=8, got \"" + piece.substr(0, 60) + "\"",
                           "ignored"});
      continue;
    }
    overrides.push_back({key, piece.substr(equals + 1), std::string(origin)});
  }
  return overrides;
}

void apply_overrides(std::vector<Override>& overrides, json& root, std::vector<Problem>* problems) {
  std::erase_if(overrides, [&](const Override& o) {
    json* place = place_of(root, o.key);
    if (place == nullptr) {
      problems->push_back({o.origin + ": ", o.key.substr(0, 60), Problem::Kind::kValue,
                           "expected a key of the config, got one below a plain value", "ignored"});
      return true;
    }
    Result<json> parsed = parse_json(o.value, o.origin);
    *place = parsed ? std::move(*parsed) : json(o.value);
    return false;
  });
}

}  // namespace mfu
