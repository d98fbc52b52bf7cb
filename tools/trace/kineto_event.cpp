#include "tools/trace/kineto_event.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>
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
    {"operator", KinetoCategory::kOldOperator}};

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

/// A value that is kept as the text has it.
struct KeptText {
  std::string_view key;  ///< with the quote behind it
  std::string_view KinetoEvent::*into;
  bool is_array = false;
};
constexpr KeptText kOfEvents[] = {{"pid\"", &KinetoEvent::pid},
                                  {"name\"", &KinetoEvent::name},
                                  {"tid\"", &KinetoEvent::tid},
                                  {"ts\"", &KinetoEvent::ts},
                                  {"dur\"", &KinetoEvent::dur}};
constexpr KeptText kOfArguments[] = {{"correlation\"", &KinetoEvent::correlation},
                                     {"stream\"", &KinetoEvent::stream},
                                     {"scope\"", &KinetoEvent::scope},
                                     {"region\"", &KinetoEvent::region},
                                     {"device\"", &KinetoEvent::device},
                                     {"bytes\"", &KinetoEvent::bytes},
                                     {"grid\"", &KinetoEvent::grid, true},
                                     {"product\"", &KinetoEvent::product, true},
                                     {"Input Dims\"", &KinetoEvent::dims, true},
                                     {"Input Strides\"", &KinetoEvent::strides, true},
                                     {"Input type\"", &KinetoEvent::types, true}};

/// Keys are compared as written: no writer escapes them.
bool is_key(const char* key, std::string_view name) noexcept { return std::memcmp(key, name.data(), name.size()) == 0; }

simdjson::error_code keep(const KeptText& text, ondemand::value& value, KinetoEvent& event) {
  if (text.is_array) return array_text(value, event.*text.into);
  event.*text.into = trimmed(value.raw_json_token());
  return simdjson::SUCCESS;
}

/// Keeps a value that the table asks for. Each comparison is with a constant: this runs for every word of a trace.
template <const auto& kTable>
simdjson::error_code keep(const char* key, ondemand::value& value, KinetoEvent& event) {
  simdjson::error_code code = simdjson::SUCCESS;
  const auto one = [&]<std::size_t i>(std::integral_constant<std::size_t, i>) {
    constexpr KeptText kText = kTable[i];
    if (key[0] != kText.key[0] || !is_key(key, kText.key)) return false;
    code = keep(kText, value, event);
    return true;
  };
  [&]<std::size_t... i>(std::index_sequence<i...>) { (void)(one(std::integral_constant<std::size_t, i>()) || ...); }
  (std::make_index_sequence<std::size(kTable)>());
  return code;
}

}  // namespace

bool needs_args(KinetoCategory c) noexcept {
  return c == KinetoCategory::kUnknown || c == KinetoCategory::kKernel || c == KinetoCategory::kMemcpy ||
         c == KinetoCategory::kMemset || c == KinetoCategory::kHostCall;
}

simdjson::error_code KinetoEventParser::parse(ondemand::object& object, bool recording, KinetoEvent& event) {
  recording_ = recording;
  for (auto each : object) {
    ondemand::field field;
    if (const auto code = std::move(each).get(field); code != simdjson::SUCCESS) return code;
    const char* key = field.key().raw();
    ondemand::value value = field.value();
    simdjson::error_code code = simdjson::SUCCESS;
    if (is_key(key, "ph\"")) {
      const std::string_view token = trimmed(value.raw_json_token());
      event.phase = token.size() == 3 ? token[1] : 0;
    } else if (is_key(key, "cat\"")) {
      event.category = category_of(unquoted(trimmed(value.raw_json_token())));
    } else if (is_key(key, "args\"")) {
      if (event.phase == 'X' || event.phase == 0) code = parse_args(value, event);
    } else {
      code = keep<kOfEvents>(key, value, event);
    }
    if (code != simdjson::SUCCESS) return code;
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
    ondemand::value value = field.value();
    if (const auto code = keep<kOfArguments>(field.key().raw(), value, event); code != simdjson::SUCCESS) return code;
  }
  if (!recording_) event.product = {};
  return simdjson::SUCCESS;
}

}  // namespace mfu
