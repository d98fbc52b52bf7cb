#include "tools/report/outputs/csv.h"

#include <fmt/format.h>

#include <ostream>

#include "core/base/number_text.h"
#include "core/rows/region_fields.h"
#include "core/sinks/sink_text.h"
#include "tools/report/escape.h"

namespace mfu {
namespace {

using Put = std::function<void(const std::string& name, const std::string& value)>;

/// `sequences 5-8: p50=0.0013 p99=0.0049; sequences 9-16: ...` [s].
std::string batches_text(const std::vector<BatchLatency>& by_batch) {
  std::string text;
  for (const BatchLatency& b : by_batch)
    text += fmt::format("{}{} {}: p50={} p99={}", text.empty() ? "" : "; ", word(b.unit), batch_range(b),
                        seconds(b.latency.p50_ns), seconds(b.latency.p99_ns));
  return text;
}

template <typename T>
std::string cell(const T& value, Unit unit) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(word(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return unit == Unit::kSeconds ? fmt::format("{}", seconds(static_cast<DurationNs>(value)))
                                  : fmt::format("{}", value);
  } else {
    return fmt::format("{}", value);
  }
}

/// `time_s` of `matmul` is the column `time_matmul_s`, `lost` of it `lost_matmul`.
std::string with_word(std::string_view key, std::string_view inner) {
  const bool has_unit = key.ends_with("_s");
  return fmt::format("{}_{}{}", has_unit ? key.substr(0, key.size() - 2) : key, inner, has_unit ? "_s" : "");
}

/// The columns of a field: none of a list that has no place in a table.
template <typename Get, typename T>
void put_columns(const Field<Get>& field, const T& value, bool device_seen, const std::string& key, const Put& put) {
  const bool known = field.null != Null::kNoDeviceActivity || device_seen;
  // No number where `suspect` has the cause. A clock may well be above the one that the peak supposes.
  const bool ratio = field.unit == Unit::kRatio && field.key != "clock_ratio";
  const auto text = [known, ratio](const auto& number, Unit unit) {
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(number)>>)
      if (ratio && !is_possible(number)) return std::string();
    return known ? cell(number, unit) : std::string();
  };
  if constexpr (kIsByClass<T>) {
    for (std::size_t c = 0; c < kTimeClasses; ++c) {
      const std::string name = with_word(key, kTimeClassNames[c]);
      if constexpr (std::is_same_v<T, ClassTimes>)
        put(name, text(value[c], field.unit));
      else
        put(name, value ? text((*value)[c], field.unit) : "");
    }
  } else if constexpr (std::is_same_v<T, LatencySummary>) {
    const auto quantile = [&](const char* name, DurationNs ns) {
      put(with_word(key.ends_with("_s") ? key : key + "_s", name),
          value.count != 0 ? cell(ns, Unit::kSeconds) : std::string());
    };
    const bool all = key == "latency";
    if (all) put(key + "_count", fmt::format("{}", value.count));
    quantile("p50", value.p50_ns);
    if (all) quantile("p90", value.p90_ns);
    quantile("p99", value.p99_ns);
    if (all) quantile("max", value.max_ns);
  } else if constexpr (std::is_same_v<T, std::vector<SlowInstance>>) {
    const SlowInstance* slowest = value.empty() ? nullptr : &value.front();
    const auto slow_text = [&](const auto& member, Unit unit) { return slowest ? cell(slowest->*member, unit) : ""; };
    put("slowest_nth", slow_text(&SlowInstance::nth, Unit::kCount));
    put("slowest_t0_ns", slow_text(&SlowInstance::t0_ns, Unit::kMoment));
    put("slowest_s", slow_text(&SlowInstance::elapsed_ns, Unit::kSeconds));
    put("slowest_lost_to", device_seen ? slow_text(&SlowInstance::lost_to, Unit::kNone) : "");
    put("slowest_excess_s", device_seen ? slow_text(&SlowInstance::excess_ns, Unit::kSeconds) : "");
  } else if constexpr (std::is_same_v<T, std::vector<BatchLatency>>) {
    put("latency_by_batch", batches_text(value));
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
    put(key, text(value, field.unit));
  } else if constexpr (requires { value.has_value(); }) {
    if constexpr (kHasFields<typename T::value_type>) {
      using Object = typename T::value_type;
      for_each_field<Object>([&](const auto& inner) {
        const std::string name = key + "_" + std::string(inner.key);
        put_columns(inner, inner.of(value ? *value : Object{}), device_seen, name,
                    [&](const std::string& n, const std::string& v) { put(n, value ? v : ""); });
      });
    } else {
      put(key, value ? text(*value, field.unit) : "");
    }
  }
}

void put_row(const RegionSummary& row, const Put& put) {
  for_each_field<RegionSummary>(
      [&](const auto& field) { put_columns(field, field.of(row), row.classes_known, std::string(field.key), put); });
}

}  // namespace

std::string csv_header() {
  std::string text = "source,host,rank,pid";
  put_row(RegionSummary{}, [&](const std::string& name, const std::string&) { text += "," + name; });
  return text;
}

CsvWriter::CsvWriter(std::ostream& out) : out_(out) { out_ << csv_header() << "\r\n"; }

void CsvWriter::process(const RunHistory& history) {
  const std::string run = fmt::format("{},{},{},{}", csv_text(file_name(history.source)), csv_text(history.run.host),
                                      history.run.rank, history.run.pid);
  for (const WindowSummary& window : history.windows) {
    for (const RegionSummary& row : window.regions) {
      std::string line = run;
      put_row(row, [&](const std::string&, const std::string& value) { line += "," + csv_text(value); });
      out_ << line << "\r\n";
    }
  }
}

}  // namespace mfu
