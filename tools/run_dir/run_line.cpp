#include "tools/run_dir/run_line.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>

namespace mfu {

namespace {

using Object = simdjson::dom::object;
using Element = simdjson::dom::element;

/// What a line holds where something else should be. Caught in read().
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

double number(std::string_view key, const Element& e) {
  double value = 0;
  if (e.get(value) != simdjson::SUCCESS) unexpected(key, e, "a number");
  return value;
}

std::optional<double> number_of(const Object& object, std::string_view key) {
  const auto e = find(object, key);
  if (!e) return std::nullopt;
  return number(key, *e);
}

template <typename Integer>
Integer integer_of(const Object& object, std::string_view key, Integer otherwise = 0) {
  const auto e = find(object, key);
  if (!e) return otherwise;
  Integer value{};
  if constexpr (std::is_signed_v<Integer>) {
    std::int64_t wide = 0;
    if (e->get(wide) != simdjson::SUCCESS) unexpected(key, *e, "an integer");
    value = static_cast<Integer>(wide);
  } else {
    std::uint64_t wide = 0;
    if (e->get(wide) != simdjson::SUCCESS) unexpected(key, *e, "a count");
    value = static_cast<Integer>(wide);
  }
  return value;
}

std::string string_of(const Object& object, std::string_view key) {
  const auto e = find(object, key);
  if (!e) return "";
  std::string_view value;
  if (e->get(value) != simdjson::SUCCESS) unexpected(key, *e, "a string");
  return std::string(value);
}

bool bool_of(const Object& object, std::string_view key) {
  const auto e = find(object, key);
  if (!e) return false;
  bool value = false;
  if (e->get(value) != simdjson::SUCCESS) unexpected(key, *e, "true or false");
  return value;
}

Object object_in(std::string_view key, const Element& e) {
  Object value;
  if (e.get(value) != simdjson::SUCCESS) unexpected(key, e, "an object");
  return value;
}

template <typename Each>
void for_each_of(const Object& object, std::string_view key, Each each) {
  const auto e = find(object, key);
  if (!e) return;
  simdjson::dom::array values;
  if (e->get(values) != simdjson::SUCCESS) unexpected(key, *e, "an array");
  for (const Element value : values) each(value);
}

/// Seconds as they are printed, back to ns: exact up to 2^53 ns (104 days).
DurationNs to_ns(double s) { return std::isfinite(s) ? std::llround(std::clamp(s, -9e9, 9e9) * 1e9) : 0; }

DurationNs ns_of(const Object& object, std::string_view key) { return to_ns(number_of(object, key).value_or(0)); }

KernelClass kernel_class_of(std::string_view text) {
  for (const KernelClass c : {KernelClass::kGemm, KernelClass::kAttention, KernelClass::kComm})
    if (text == name(c)) return c;
  return KernelClass::kOther;
}

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

LatencySummary latency_in(const Object& o, std::string_view key, const std::string& suffix) {
  const auto e = find(o, key);
  return e ? latency_of(object_in(key, *e), suffix) : LatencySummary{};
}

ClassTimes times_of(const Object& o) {
  ClassTimes times{};
  if (const auto e = find(o, "time_s")) {
    const Object by_class = object_in("time_s", *e);
    for (std::size_t c = 0; c < kTimeClasses; ++c) times[c] = ns_of(by_class, kTimeClassNames[c]);
  }
  return times;
}

BatchLatency batch_of(const Object& o) {
  BatchLatency b;
  b.unit = string_of(o, "unit") == kBatchUnitNames[static_cast<std::size_t>(BatchUnit::kTokens)]
               ? BatchUnit::kTokens
               : BatchUnit::kSequences;
  b.batch_min = integer_of<std::int64_t>(o, "batch_min");
  b.batch_max = integer_of<std::int64_t>(o, "batch_max");
  b.instances = integer_of<std::uint64_t>(o, "instances");
  b.tokens = integer_of<std::int64_t>(o, "tokens");
  b.elapsed_ns = ns_of(o, "elapsed_s");
  b.latency = latency_in(o, "latency_s", "");
  b.flop = number_of(o, "flop");
  b.bytes = number_of(o, "bytes");
  b.mfu = number_of(o, "mfu");
  b.mbu = number_of(o, "mbu");
  return b;
}

SlowInstance slow_of(const Object& o) {
  SlowInstance s;
  s.nth = integer_of<std::uint64_t>(o, "nth");
  s.t0_ns = integer_of<std::int64_t>(o, "t0_ns");
  s.elapsed_ns = ns_of(o, "elapsed_s");
  s.time_ns = times_of(o);
  const auto at = std::find(kTimeClassNames.begin(), kTimeClassNames.end(), string_of(o, "lost_to"));
  if (at != kTimeClassNames.end()) s.lost_to = static_cast<TimeClass>(at - kTimeClassNames.begin());
  s.excess_ns = ns_of(o, "excess_s");
  return s;
}

RegionSummary region_of(const Object& o) {
  RegionSummary r;
  r.region = string_of(o, "region");
  if (find(o, "device")) r.device = integer_of<std::uint32_t>(o, "device");
  r.window = {integer_of<std::int64_t>(o, "t0_ns"), integer_of<std::int64_t>(o, "t1_ns")};
  r.instances = integer_of<std::uint64_t>(o, "instances");
  r.open = integer_of<std::uint64_t>(o, "open");
  r.tokens = integer_of<std::int64_t>(o, "tokens");
  r.elapsed_ns = ns_of(o, "elapsed_s");
  r.busy_ns = ns_of(o, "busy_s");
  r.classes_known = find(o, "busy_s").has_value();
  r.kernel_sum_ns = ns_of(o, "kernel_sum_s");
  r.kernels = integer_of<std::uint64_t>(o, "kernels");
  r.launches = integer_of<std::uint64_t>(o, "launches");
  r.comm_kernels = integer_of<std::uint64_t>(o, "comm_kernels");
  r.comm_sum_ns = ns_of(o, "comm_sum_s");
  r.latency = latency_in(o, "latency", "_s");
  r.inter_token = latency_in(o, "inter_token_s", "");
  for_each_of(o, "by_batch", [&](const Element& e) { r.by_batch.push_back(batch_of(object_in("by_batch", e))); });
  r.prefill_to_decode = latency_in(o, "prefill_to_decode_s", "");
  if (find(o, "after_prefill")) r.after_prefill = integer_of<std::uint64_t>(o, "after_prefill");
  for_each_of(o, "slowest", [&](const Element& e) { r.slowest.push_back(slow_of(object_in("slowest", e))); });
  r.flop = number_of(o, "flop");
  r.bytes = number_of(o, "bytes");
  r.mfu = number_of(o, "mfu");
  r.mfu_busy = number_of(o, "mfu_busy");
  r.hfu = number_of(o, "hfu");
  r.mbu = number_of(o, "mbu");
  if (r.hfu && r.mfu && r.flop && *r.mfu > 0) r.hfu_flop = *r.flop * (*r.hfu / *r.mfu);
  r.roofline_s = number_of(o, "roofline_s");
  const std::string bound = string_of(o, "bound");
  r.bound = bound == "compute" ? Bound::kCompute : bound == "memory" ? Bound::kMemory : Bound::kUnknown;
  r.clock_ratio = number_of(o, "clock_ratio");
  r.suspect = string_of(o, "suspect");
  r.overlapped = bool_of(o, "overlapped");
  r.time_ns = times_of(o);
  if (const auto e = find(o, "lost")) {
    const Object lost = object_in("lost", *e);
    std::array<double, kTimeClasses> values{};
    bool all = true;
    for (std::size_t c = 0; c < kTimeClasses; ++c) {
      const auto value = number_of(lost, kTimeClassNames[c]);
      all = all && value.has_value();
      values[c] = value.value_or(0);
    }
    if (all) r.lost = values;
  }
  for_each_of(o, "top_kernels", [&](const Element& e) {
    const Object k = object_in("top_kernels", e);
    r.top_kernels.push_back({string_of(k, "name"), kernel_class_of(string_of(k, "class")),
                             integer_of<std::uint64_t>(k, "count"), ns_of(k, "sum_s")});
  });
  if (const auto e = find(o, "shape_source")) {
    for (const auto field : object_in("shape_source", *e)) {
      std::string_view source;
      if (field.value.get(source) != simdjson::SUCCESS) unexpected(field.key, field.value, "a string");
      r.shape_source.emplace_back(std::string(field.key), std::string(source));
    }
  }
  r.named_by = string_of(o, "named_by");
  if (const auto e = find(o, "detected")) {
    const Object d = object_in("detected", *e);
    r.detected = Detected{string_of(d, "kind"), integer_of<std::uint64_t>(d, "period_launches"),
                          string_of(d, "confidence"), integer_of<std::uint64_t>(d, "micro_steps")};
  }
  return r;
}

std::vector<std::pair<std::string, std::uint64_t>> counters_of(const Object& o) {
  std::vector<std::pair<std::string, std::uint64_t>> counters;
  if (const auto e = find(o, "counters")) {
    for (const auto field : object_in("counters", *e)) {
      std::uint64_t count = 0;
      if (field.value.get(count) != simdjson::SUCCESS) unexpected(field.key, field.value, "a count");
      counters.emplace_back(std::string(field.key), count);
    }
  }
  return counters;
}

std::optional<SelfCost> self_of(const Object& o) {
  const auto e = find(o, "self");
  if (!e) return std::nullopt;
  const Object self = object_in("self", *e);
  return SelfCost{number_of(self, "cpu_s").value_or(0), integer_of<std::uint64_t>(self, "rss_bytes"),
                  number_of(self, "overhead").value_or(0)};
}

RunInfo start_of(const Object& o, TimeNs t_ns) {
  RunInfo run;
  run.t_ns = t_ns;
  run.host = string_of(o, "host");
  run.pid = integer_of<std::int64_t>(o, "pid");
  run.rank = integer_of<std::int64_t>(o, "rank");
  if (find(o, "local_rank")) run.local_rank = integer_of<std::int64_t>(o, "local_rank");
  run.world_size = integer_of<std::int64_t>(o, "world", 1);
  run.version = string_of(o, "version");
  for_each_of(o, "devices", [&](const Element& e) {
    const Object d = object_in("devices", e);
    DeviceInfo device;
    device.device = integer_of<std::uint32_t>(d, "device");
    device.name = string_of(d, "name");
    device.uuid = string_of(d, "uuid");
    device.peak_flop_per_s = number_of(d, "peak_flop_per_s");
    device.peak_bytes_per_s = number_of(d, "peak_bytes_per_s");
    device.peak_source = string_of(d, "peak_source");
    device.dtype = string_of(d, "dtype");
    device.dtype_source = string_of(d, "dtype_source");
    device.sparse = bool_of(d, "sparse");
    run.devices.push_back(std::move(device));
  });
  if (const auto e = find(o, "cupti")) {
    const Object cupti = object_in("cupti", *e);
    run.cupti_path = string_of(cupti, "path");
    run.cupti_version = integer_of<std::uint32_t>(cupti, "version");
    run.level = string_of(cupti, "level");
  }
  if (const auto e = find(o, "config")) run.config_json = simdjson::minify(*e);
  if (const auto e = find(o, "model")) run.model_json = simdjson::minify(*e);
  run.convention = string_of(o, "convention");
  return run;
}

EndLine end_of(const Object& o) {
  EndLine end;
  end.whole.final_run = true;
  end.whole.window = {integer_of<std::int64_t>(o, "t0_ns"), integer_of<std::int64_t>(o, "t1_ns")};
  for_each_of(o, "regions", [&](const Element& e) { end.whole.regions.push_back(region_of(object_in("regions", e))); });
  if (const auto e = find(o, "launches")) {
    const Object l = object_in("launches", *e);
    end.whole.launches = {integer_of<std::uint64_t>(l, "seen"), integer_of<std::uint64_t>(l, "attributed"),
                          integer_of<std::uint64_t>(l, "outside"), integer_of<std::uint64_t>(l, "unattributed"),
                          integer_of<std::uint64_t>(l, "dropped")};
  }
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
    RunLine line;
    line.v = integer_of<std::int64_t>(o, "v", 0);
    line.t_ns = integer_of<std::int64_t>(o, "t_ns");
    line.seq = integer_of<std::uint64_t>(o, "seq");
    const std::string type = string_of(o, "type");
    if (line.v < 1 || type.empty()) return Error{"neither 'v' nor 'type': not a line of a run directory"};
    if (type == "start")
      line.what = start_of(o, line.t_ns);
    else if (type == "window")
      line.what = WindowLine{region_of(o), counters_of(o), self_of(o)};
    else if (type == "event")
      line.what = EventLine{string_of(o, "kind"), string_of(o, "message")};
    else if (type == "end")
      line.what = end_of(o);
    else
      line.what = UnknownLine{type};
    return line;
  } catch (const Unexpected& e) {
    return Error{e.message};
  } catch (const std::exception& e) {
    return Error{e.what()};
  }
}

}  // namespace mfu
