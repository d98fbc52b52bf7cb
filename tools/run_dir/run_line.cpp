#include "tools/run_dir/run_line.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/printable.h"
#include "core/rows/metrics.h"
#include "core/sinks/run_fields.h"

namespace mfu {
namespace {

using Object = simdjson::dom::object;
using Element = simdjson::dom::element;

constexpr TimeNs kLatestMoment = 4'000'000'000 * kNsPerSecond;  ///< in 2096
constexpr std::int64_t kMostRanks = std::int64_t{1} << 40;      ///< as the library reads them
constexpr std::size_t kMostDevices = 1024;

/// A value in the place of another one. Caught in read().
struct Unexpected {
  std::string message;
};

[[noreturn]] void unexpected(std::string_view key, const Element& met, std::string_view expected) {
  std::string value = simdjson::minify(met);
  if (value.size() > 60) value = value.substr(0, 57) + "...";
  throw Unexpected{fmt::format("'{}': {} is not {}", key, value, expected)};
}

/// The element, or nothing where the key is absent or null.
std::optional<Element> find(const Object& object, std::string_view key) {
  Element e;
  if (object.at_key(key).get(e) != simdjson::SUCCESS || e.is_null()) return std::nullopt;
  return e;
}

/// The value of an element that is there. \param expected what it is where it is what it should be
template <typename T>
T get(std::string_view key, const Element& e, std::string_view expected) {
  T value{};
  if (e.get(value) != simdjson::SUCCESS) unexpected(key, e, expected);
  return value;
}

double number(std::string_view key, const Element& e) { return get<double>(key, e, "a number"); }
Object object_in(std::string_view key, const Element& e) { return get<Object>(key, e, "an object"); }

std::optional<double> number_of(const Object& object, std::string_view key) {
  const auto e = find(object, key);
  return e ? std::optional(number(key, *e)) : std::nullopt;
}

template <typename Integer>
Integer integer_of(const Object& object, std::string_view key, Integer otherwise = 0) {
  const auto e = find(object, key);
  if (!e) return otherwise;
  if constexpr (std::is_signed_v<Integer>)
    return static_cast<Integer>(get<std::int64_t>(key, *e, "an integer"));
  else
    return static_cast<Integer>(get<std::uint64_t>(key, *e, "a count"));
}

/// Nothing of a file reaches a terminal, a page or a label as it is there.
std::string string_of(const Object& object, std::string_view key) {
  const auto e = find(object, key);
  return e ? printable(get<std::string_view>(key, *e, "a string")) : "";
}

template <typename Each>
void for_each_of(const Object& object, std::string_view key, Each each) {
  const auto e = find(object, key);
  if (!e) return;
  for (const Element value : get<simdjson::dom::array>(key, *e, "an array")) each(value);
}

/// Seconds as they are printed, back to ns: exact up to 2^53 ns (104 days). No more than 63 years, so that a few of
/// them can be added.
DurationNs to_ns(double s) { return std::isfinite(s) ? std::llround(std::clamp(s, -2e9, 2e9) * 1e9) : 0; }

/// A point of time of this century, so that the difference of two, or a point and a duration, is a number too.
TimeNs moment(std::int64_t t_ns) { return std::clamp<TimeNs>(t_ns, 0, kLatestMoment); }

DurationNs ns_of(const Object& object, std::string_view key) { return to_ns(number_of(object, key).value_or(0)); }

/// `suffix`: `_s` where the unit is in each key, empty where it is in the object's own.
LatencySummary latency_of(const Object& object, const std::string& suffix) {
  LatencySummary l;
  l.count = integer_of<std::uint64_t>(object, "count");
  l.p50_ns = ns_of(object, "p50" + suffix);
  l.p90_ns = ns_of(object, "p90" + suffix);
  l.p99_ns = ns_of(object, "p99" + suffix);
  l.max_ns = ns_of(object, "max" + suffix);
  for_each_of(object, "histogram", [&](const Element& e) {
    simdjson::dom::array pair;
    double upper = 0;
    std::uint64_t count = 0;
    if (e.get(pair) != simdjson::SUCCESS || pair.at(0).get(upper) != simdjson::SUCCESS ||
        pair.at(1).get(count) != simdjson::SUCCESS)
      unexpected("histogram", e, "[seconds, count]");
    l.histogram.emplace_back(to_ns(upper), count);
  });
  return l;
}

/// The value of a word; of one that this version does not know, `otherwise`.
template <typename Enum>
Enum value_of_word(std::string_view text, Enum otherwise) {
  const auto& words = kWords<Enum>;
  const auto at = std::find(words.begin(), words.end(), text);
  return at == words.end() ? otherwise : static_cast<Enum>(at - words.begin());
}

template <typename T>
T row_of(const Object& object);

/// Reads one field as json_of in core/sinks/region_json.cpp writes it. Absent and null leave what `into` has.
template <typename Get, typename T>
void read_field(const Object& o, const Field<Get>& field, T& into) {
  const std::string_view key = field.key;
  const auto e = find(o, key);
  if (!e) return;
  if constexpr (std::is_same_v<T, ClassTimes>) {
    const Object by_class = object_in(key, *e);
    for (std::size_t c = 0; c < kTimeClasses; ++c) into[c] = ns_of(by_class, kTimeClassNames[c]);
  } else if constexpr (kIsByClass<T>) {
    const Object by_class = object_in(key, *e);
    typename T::value_type values{};
    bool all = true;
    for (std::size_t c = 0; c < kTimeClasses; ++c) {
      const auto value = number_of(by_class, kTimeClassNames[c]);
      all = all && value.has_value();
      values[c] = value.value_or(0);
    }
    if (all) into = values;
  } else if constexpr (std::is_same_v<T, LatencySummary>) {
    into = latency_of(object_in(key, *e), std::string(quantile_suffix(key)));
  } else if constexpr (std::is_same_v<T, bool>) {
    into = get<bool>(key, *e, "true or false");
  } else if constexpr (std::is_floating_point_v<T>) {
    into = number(key, *e);
  } else if constexpr (std::is_integral_v<T>) {
    if (field.unit == Unit::kSeconds)
      into = static_cast<T>(ns_of(o, key));
    else if (field.unit == Unit::kMoment)
      into = static_cast<T>(moment(integer_of<std::int64_t>(o, key)));
    else
      into = integer_of<T>(o, key);
  } else if constexpr (std::is_enum_v<T>) {
    into = value_of_word(string_of(o, key), into);
  } else if constexpr (std::is_same_v<T, std::string>) {
    into = string_of(o, key);
  } else if constexpr (requires { into.has_value(); }) {
    typename T::value_type value{};
    read_field(o, field, value);
    into = std::move(value);
  } else if constexpr (kHasFields<T>) {
    into = row_of<T>(object_in(key, *e));
  } else if constexpr (std::is_same_v<typename T::value_type, std::pair<std::string, std::string>>) {
    for (const auto entry : object_in(key, *e))
      into.emplace_back(printable(entry.key), printable(get<std::string_view>(entry.key, entry.value, "a string")));
  } else {
    for_each_of(o, key,
                [&](const Element& entry) { into.push_back(row_of<typename T::value_type>(object_in(key, entry))); });
  }
}

template <typename T>
T row_of(const Object& object) {
  T row;
  for_each_field<T>([&](const auto& field) { read_field(object, field, field.of(row)); });
  return row;
}

RegionSummary region_of(const Object& o) {
  auto r = row_of<RegionSummary>(o);
  r.classes_known = find(o, "busy_s").has_value();
  if (r.hfu && r.mfu && r.flop && *r.mfu > 0) r.hfu_flop = *r.flop * (*r.hfu / *r.mfu);
  doubt_impossible(r);
  return r;
}

std::vector<std::pair<std::string, std::uint64_t>> counters_of(const Object& o) {
  std::vector<std::pair<std::string, std::uint64_t>> counters;
  if (const auto e = find(o, "counters")) {
    for (const auto field : object_in("counters", *e))
      counters.emplace_back(printable(field.key), get<std::uint64_t>(field.key, field.value, "a count"));
  }
  return counters;
}

std::optional<SelfCost> self_of(const Object& o) {
  const auto e = find(o, "self");
  return e ? std::optional(row_of<SelfCost>(object_in("self", *e))) : std::nullopt;
}

RunInfo start_of(const Object& o, TimeNs t_ns) {
  auto run = row_of<RunInfo>(o);
  run.t_ns = t_ns;
  run.began_ns = moment(integer_of<std::int64_t>(o, "began_ns"));
  if (const auto e = find(o, "job")) {
    const Object job = object_in("job", *e);
    run.job_id = string_of(job, "id");
    run.restart = integer_of<std::int64_t>(job, "restart");
  }
  run.rank = std::clamp<std::int64_t>(run.rank, 0, kMostRanks);
  run.world_size = std::clamp<std::int64_t>(run.world_size, 0, kMostRanks);
  // A device that is named twice would give every series of it twice.
  std::set<std::uint32_t> known;
  std::erase_if(run.devices, [&known](const DeviceInfo& device) {
    return known.size() == kMostDevices || !known.insert(device.device).second;
  });
  if (const auto e = find(o, "cupti")) {
    const Object cupti = object_in("cupti", *e);
    run.cupti_path = string_of(cupti, "path");
    run.cupti_version = integer_of<std::uint32_t>(cupti, "version");
    run.level = string_of(cupti, "level");
  }
  if (const auto e = find(o, "config")) run.config_json = printable(simdjson::minify(*e));
  if (const auto e = find(o, "model")) run.model_json = printable(simdjson::minify(*e));
  run.convention = string_of(o, "convention");
  run.trace = string_of(o, "trace");
  return run;
}

std::optional<Stall> stall_of(const Object& o) {
  const auto e = find(o, "stall");
  return e ? std::optional(row_of<Stall>(object_in("stall", *e))) : std::nullopt;
}

EndLine end_of(const Object& o) {
  EndLine end;
  end.whole.final_run = true;
  end.whole.so_far = find(o, "so_far").has_value();
  end.whole.window = {moment(integer_of<std::int64_t>(o, "t0_ns")), moment(integer_of<std::int64_t>(o, "t1_ns"))};
  for_each_of(o, "regions", [&](const Element& e) { end.whole.regions.push_back(region_of(object_in("regions", e))); });
  if (const auto e = find(o, "launches")) end.whole.launches = row_of<LaunchAccount>(object_in("launches", *e));
  end.whole.self = self_of(o).value_or(SelfCost{});
  end.whole.counters = counters_of(o);
  return end;
}

}  // namespace

struct RunLineReader::Parser {
  simdjson::dom::parser json;
};

RunLineReader::RunLineReader() : parser_(std::make_unique<Parser>()) {}
RunLineReader::~RunLineReader() = default;
RunLineReader::RunLineReader(RunLineReader&&) noexcept = default;
RunLineReader& RunLineReader::operator=(RunLineReader&&) noexcept = default;

Result<RunLine> RunLineReader::read(std::string_view text) {
  try {
    Element top;
    if (const auto failed = parser_->json.parse(text.data(), text.size()).get(top); failed != simdjson::SUCCESS)
      return Error{fmt::format("not a JSON object: {}", simdjson::error_message(failed))};
    const Object o = object_in("line", top);
    Result<RunLine> result{RunLine{}};
    RunLine& line = *result;
    line.v = integer_of<std::int64_t>(o, "v", 0);
    line.t_ns = moment(integer_of<std::int64_t>(o, "t_ns"));
    line.seq = integer_of<std::uint64_t>(o, "seq");
    const std::string type = string_of(o, "type");
    if (line.v < 1 || type.empty()) return Error{"neither 'v' nor 'type': not a line of a run directory"};
    if (type == "start")
      line.what = start_of(o, line.t_ns);
    else if (type == "window")
      line.what = WindowLine{region_of(o), counters_of(o), self_of(o), stall_of(o),
                             std::max<DurationNs>(0, ns_of(o, "next_s"))};
    else if (type == "event")
      line.what = RunEvent{line.t_ns, string_of(o, "kind"), string_of(o, "message"), stall_of(o)};
    else if (type == "end")
      line.what = end_of(o);
    else
      line.what = UnknownLine{type};
    return result;
  } catch (const Unexpected& e) {
    return Error{e.message};
  } catch (const std::exception& e) {
    return Error{e.what()};
  }
}

}  // namespace mfu
