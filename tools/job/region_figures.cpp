#include "tools/job/region_figures.h"

#include "core/rows/region_fields.h"

namespace mfu {
namespace {

using Row = RegionSummary;

std::optional<double> double_of(double value, Unit) { return value; }
std::optional<double> double_of(std::integral auto value, Unit unit) {
  return unit == Unit::kSeconds ? seconds(static_cast<DurationNs>(value)) : static_cast<double>(value);
}
template <typename T>
std::optional<double> double_of(const std::optional<T>& value, Unit unit) {
  return value ? double_of(*value, unit) : std::nullopt;
}

template <typename T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
template <typename T>
inline constexpr bool kIsNumber<std::optional<T>> = kIsNumber<T>;

/// The figures of the field that `of` gives of a row: one of a number, five of a waterfall, the quantiles of a
/// histogram, those of the fields of an object.
template <typename T, typename Get, typename Of>
void add_figures(std::vector<RegionFigure>& into, const std::string& key, const Field<Get>& field, Of of) {
  const bool device_activity = field.null == Null::kNoDeviceActivity;
  const Unit unit = field.unit;
  const auto add = [&](const std::string& name, Unit its_unit, auto value_of) {
    into.push_back({name, its_unit, field.compared, [of, value_of, device_activity](const JobRegion& r) {
                      const Row& row = r.sum();
                      const T* value = of(row);
                      return value == nullptr || (device_activity && !row.classes_known) ? std::nullopt
                                                                                         : value_of(*value);
                    }});
  };
  if constexpr (kIsByClass<T>) {
    for (std::size_t c = 0; c < kTimeClasses; ++c)
      add(key + "." + std::string(kTimeClassNames[c]), unit, [c, unit](const T& value) -> std::optional<double> {
        [[maybe_unused]] const Unit of_times = unit;
        if constexpr (std::is_same_v<T, ClassTimes>)
          return double_of(value[c], of_times);
        else
          return value ? std::optional(double((*value)[c])) : std::nullopt;
      });
  } else if constexpr (std::is_same_v<T, LatencySummary>) {
    const std::string suffix(quantile_suffix(key));
    add(key + ".count", Unit::kCount, [](const LatencySummary& l) { return std::optional<double>(double(l.count)); });
    const auto quantile = [&](const char* name, DurationNs LatencySummary::*of_it) {
      add(key + "." + name + suffix, Unit::kSeconds,
          [of_it](const LatencySummary& l) { return l.count != 0 ? std::optional(seconds(l.*of_it)) : std::nullopt; });
    };
    quantile("p50", &LatencySummary::p50_ns);
    quantile("p90", &LatencySummary::p90_ns);
    quantile("p99", &LatencySummary::p99_ns);
    quantile("max", &LatencySummary::max_ns);
  } else if constexpr (kIsNumber<T>) {
    if (unit != Unit::kMoment && key != "device")
      add(key, unit, [unit](const T& value) { return double_of(value, unit); });
  } else if constexpr (requires(T value) { value.has_value(); }) {
    if constexpr (kHasFields<typename T::value_type>)
      for_each_field<typename T::value_type>([&](const auto& inner) {
        using Inner = std::remove_cvref_t<decltype(inner.of(std::declval<const typename T::value_type&>()))>;
        add_figures<Inner>(into, key + "." + std::string(inner.key), inner,
                           [of, inner](const Row& row) -> const Inner* {
                             const T* outer = of(row);
                             return outer != nullptr && *outer ? &inner.of(**outer) : nullptr;
                           });
      });
  }
}

std::vector<RegionFigure> made_figures() {
  std::vector<RegionFigure> figures;
  for_each_field<Row>([&](const auto& field) {
    using T = std::remove_cvref_t<decltype(field.of(std::declval<const Row&>()))>;
    add_figures<T>(figures, std::string(field.key), field, [field](const Row& row) { return &field.of(row); });
  });
  figures.push_back({"tokens_per_s", Unit::kNone, true, [](const JobRegion& r) { return tokens_per_s(r.sum()); }});
  figures.push_back({"each_s", Unit::kSeconds, true, [](const JobRegion& r) { return each_s(r.sum()); }});
  const auto cost = [&figures](const char* key, auto count, double factor) {
    figures.push_back({key, Unit::kNone, true, [count, factor](const JobRegion& r) {
                         const auto n = static_cast<double>(count(r));
                         return r.cost && n > 0 ? std::optional(factor * *r.cost / n) : std::nullopt;
                       }});
  };
  cost(
      "cost", [](const JobRegion&) { return 1; }, 1);
  cost(
      "cost_each", [](const JobRegion& r) { return r.name == "total" ? 0 : r.sum().instances; }, 1);
  cost(
      "cost_per_million_tokens", [](const JobRegion& r) { return r.sum().tokens; }, 1e6);
  cost(
      "cost_per_million_output_tokens", [](const JobRegion& r) { return r.output_tokens; }, 1e6);
  figures.push_back(
      {"ranks", Unit::kCount, false, [](const JobRegion& r) { return std::optional(double(r.processes)); }});
  return figures;
}

}  // namespace

std::optional<double> tokens_per_s(const RegionSummary& row) {
  if (row.tokens == 0 || row.elapsed_ns == 0) return std::nullopt;
  return static_cast<double>(row.tokens) / seconds(row.elapsed_ns);
}

std::optional<double> each_s(const RegionSummary& row) {
  if (row.instances == 0 || row.region == "total") return std::nullopt;
  return seconds(row.elapsed_ns) / static_cast<double>(row.instances);
}

const std::vector<RegionFigure>& region_figures() {
  static const std::vector<RegionFigure> kFigures = made_figures();
  return kFigures;
}

const RegionFigure* find_figure(std::string_view key) {
  for (const RegionFigure& figure : region_figures())
    if (figure.key == key) return &figure;
  if (key == "count") return nullptr;
  for (const RegionFigure& figure : region_figures())
    if (figure.key.starts_with("latency.") && figure.key.substr(8) == key) return &figure;
  return nullptr;
}

}  // namespace mfu
