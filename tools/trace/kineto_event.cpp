#include "tools/trace/kineto_event.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/trace/json_text.h"
#include "tools/trace/operator_products.h"

namespace mfu {
namespace {

namespace ondemand = simdjson::ondemand;

bool equal_fold(std::string_view text, std::string_view lower) noexcept {
  return text.size() == lower.size() && std::equal(text.begin(), text.end(), lower.begin(), [](char a, char b) {
           return ((a >= 'A' && a <= 'Z') ? static_cast<char>(a | 0x20) : a) == b;
         });
}

/// Every name of a category that decides something, old and new, in lower case.
constexpr std::pair<std::string_view, KinetoCategory> kCategories[] = {
    {"kernel", KinetoCategory::kKernel},
    {"memcpy", KinetoCategory::kMemcpy},
    {"gpu_memcpy", KinetoCategory::kMemcpy},
    {"memset", KinetoCategory::kMemset},
    {"gpu_memset", KinetoCategory::kMemset},
    {"runtime", KinetoCategory::kHostCall},
    {"cuda_runtime", KinetoCategory::kHostCall},
    {"cuda_driver", KinetoCategory::kHostCall},
    {"user_annotation", KinetoCategory::kUserAnnotation},
    {"gpu_user_annotation", KinetoCategory::kGpuAnnotation},
    {"operator", KinetoCategory::kOldOperator},
};

KinetoCategory category_of(std::string_view cat) noexcept {
  for (const auto& [name, category] : kCategories)
    if (equal_fold(cat, name)) return category;
  return cat == "Trace" ? KinetoCategory::kSession : cat == "scope" ? KinetoCategory::kScope : KinetoCategory::kOther;
}

/// The text of an array; anything else is passed over.
simdjson::error_code array_text(ondemand::value& value, std::string_view& into) {
  if (value.raw_json_token().front() != '[') return simdjson::SUCCESS;
  ondemand::array array;
  if (const auto code = value.get_array().get(array); code != simdjson::SUCCESS) return code;
  return array.raw_json().get(into);
}

}  // namespace

bool needs_args(KinetoCategory c) noexcept {
  return c == KinetoCategory::kUnknown || c == KinetoCategory::kKernel || c == KinetoCategory::kMemcpy ||
         c == KinetoCategory::kMemset || c == KinetoCategory::kHostCall;
}

// Keys are compared as written: no writer escapes them.
simdjson::error_code KinetoEventParser::parse(ondemand::object& object, bool recording, KinetoEvent& event) {
  recording_ = recording;
  for (auto each : object) {
    ondemand::field field;
    if (const auto code = std::move(each).get(field); code != simdjson::SUCCESS) return code;
    const char* key = field.key().raw();
    ondemand::value value = field.value();
    const auto is = [key](std::string_view name) { return std::memcmp(key, name.data(), name.size()) == 0; };
    switch (key[0]) {
      case 'p':
        if (is("ph\"")) {
          const std::string_view token = trimmed(value.raw_json_token());
          event.phase = token.size() == 3 ? token[1] : 0;
        } else if (is("pid\"")) {
          event.pid = trimmed(value.raw_json_token());
        }
        break;
      case 'c':
        if (is("cat\"")) event.category = category_of(unquoted(trimmed(value.raw_json_token())));
        break;
      case 'n':
        if (is("name\"")) event.name = trimmed(value.raw_json_token());
        break;
      case 't':
        if (is("tid\"")) event.tid = trimmed(value.raw_json_token());
        if (is("ts\"")) event.ts = trimmed(value.raw_json_token());
        break;
      case 'd':
        if (is("dur\"")) event.dur = trimmed(value.raw_json_token());
        break;
      case 'a':
        if (is("args\"") && (event.phase == 'X' || event.phase == 0)) {
          if (const auto code = parse_args(value, event); code != simdjson::SUCCESS) return code;
        }
        break;
      default:
        break;
    }
  }
  return simdjson::SUCCESS;
}

simdjson::error_code KinetoEventParser::parse_args(ondemand::value& value, KinetoEvent& event) {
  if (value.raw_json_token().front() != '{') return simdjson::SUCCESS;
  ondemand::object args;
  if (const auto code = value.get_object().get(args); code != simdjson::SUCCESS) return code;
  if (event.category == KinetoCategory::kOther && is_product_operator(unquoted(event.name)))
    return collect_args(args, event);
  if (!needs_args(event.category) && !(recording_ && event.category == KinetoCategory::kUserAnnotation))
    return simdjson::SUCCESS;
  return collect_args(args, event);
}

simdjson::error_code KinetoEventParser::collect_args(ondemand::object& args, KinetoEvent& event) const {
  for (auto each : args) {
    ondemand::field field;
    if (const auto code = std::move(each).get(field); code != simdjson::SUCCESS) return code;
    const char* key = field.key().raw();
    ondemand::value value = field.value();
    const auto is = [key](std::string_view name) { return std::memcmp(key, name.data(), name.size()) == 0; };
    switch (key[0]) {
      case 'c':
        if (is("correlation\"")) event.correlation = trimmed(value.raw_json_token());
        break;
      case 's':
        if (is("stream\"")) event.stream = trimmed(value.raw_json_token());
        if (is("scope\"")) event.scope = trimmed(value.raw_json_token());
        break;
      case 'r':
        if (is("region\"")) event.region = trimmed(value.raw_json_token());
        break;
      case 'd':
        if (is("device\"")) event.device = trimmed(value.raw_json_token());
        break;
      case 'g':
        if (is("grid\"")) {
          if (const auto code = array_text(value, event.grid); code != simdjson::SUCCESS) return code;
        }
        break;
      case 'p':
        if (is("product\"") && recording_) {
          if (const auto code = array_text(value, event.product); code != simdjson::SUCCESS) return code;
        }
        break;
      case 'I':
        if (is("Input ")) {
          std::string_view* into = is("Input Dims\"")      ? &event.dims
                                   : is("Input Strides\"") ? &event.strides
                                   : is("Input type\"")    ? &event.types
                                                           : nullptr;
          if (into == nullptr) break;
          if (const auto code = array_text(value, *into); code != simdjson::SUCCESS) return code;
        }
        break;
      case 'b':
        if (is("bytes\"")) event.bytes = trimmed(value.raw_json_token());
        break;
      default:
        break;
    }
  }
  return simdjson::SUCCESS;
}

}  // namespace mfu
