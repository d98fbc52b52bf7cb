#include "tools/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/job/region_figures.h"
#include "tools/report/format.h"
#include "core/sinks/region_json.h"
#include "tools/report/outputs/json.h"

namespace mfu {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, kTimeClasses> kLostNames{"matmul loss", "other", "comm", "copy", "idle"};
constexpr std::array<std::string_view, kTimeClasses> kTimeNames{"matmul", "other", "comm", "copy", "idle"};

ComparedFigure compared(std::string_view key, std::optional<double> a, std::optional<double> b) {
  return {key, a, b, a && b ? std::optional(*b - *a) : std::nullopt};
}

/// What kernel times are divided by, so that runs of different length can be compared.
std::optional<double> instances_of(const RegionSummary& r) {
  if (r.region == "total") return r.elapsed_ns > 0 ? std::optional(seconds(r.elapsed_ns)) : std::nullopt;
  return r.instances != 0 ? std::optional(static_cast<double>(r.instances)) : std::nullopt;
}

std::vector<ComparedKernel> compared_kernels(const RegionSummary& a, const RegionSummary& b) {
  const auto per_a = instances_of(a);
  const auto per_b = instances_of(b);
  if (!per_a || !per_b) return {};
  std::map<std::string, ComparedKernel> kernels;
  for (const TopKernel& k : a.top_kernels)
    kernels.insert_or_assign(k.name, ComparedKernel{k.name, k.kernel_class, seconds(k.sum_ns) / *per_a, std::nullopt});
  for (const TopKernel& k : b.top_kernels) {
    ComparedKernel& into =
        kernels.try_emplace(k.name, ComparedKernel{k.name, k.kernel_class, std::nullopt, std::nullopt}).first->second;
    into.b_s = seconds(k.sum_ns) / *per_b;
  }
  std::vector<ComparedKernel> sorted;
  for (auto& [name, kernel] : kernels) sorted.push_back(std::move(kernel));
  const auto change = [](const ComparedKernel& k) { return std::fabs(k.b_s.value_or(0) - k.a_s.value_or(0)); };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const ComparedKernel& x, const ComparedKernel& y) { return change(x) > change(y); });
  return sorted;
}

std::string_view class_name(const ComparedRegion& region, std::size_t c) {
  return region.basis == ComparedRegion::Basis::kMfu ? kLostNames[c] : kTimeNames[c];
}

/// `step: MFU 40.2 % > 38.1 %, -2.1 points: idle +3.0, other -0.9`
std::string words_of(const ComparedRegion& r) {
  if (!r.in_b) return fmt::format("{} is only in A", r.name);
  if (!r.in_a) return fmt::format("{} is only in B", r.name);
  std::string text = r.name + ": ";
  if (r.basis == ComparedRegion::Basis::kMfu)
    text +=
        fmt::format("MFU {} to {}, {} points", percent_text(r.mfu.a), percent_text(r.mfu.b), points_text(r.mfu.change));
  else
    text += r.basis == ComparedRegion::Basis::kTime ? "MFU unknown; shares of time" : "nothing to compare";
  std::vector<std::pair<double, std::string_view>> parts;
  for (std::size_t c = 0; c < kTimeClasses && r.basis != ComparedRegion::Basis::kNone; ++c)
    if (std::fabs(*r.classes[c].change) >= 0.0005) parts.emplace_back(*r.classes[c].change, class_name(r, c));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& x, const auto& y) { return std::fabs(x.first) > std::fabs(y.first); });
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? ": " : ", ", parts[i].second, points_text(parts[i].first));
  for (const ComparedFigure& f : r.figures)
    if (f.key == "each_s" && f.a && f.b && *f.a > 0)
      text +=
          fmt::format("; {} to {} each ({:+.1f} %)", duration_text(f.a), duration_text(f.b), 100 * (*f.b / *f.a - 1));
  return text;
}

std::string facts_of(const Job& job, const std::function<std::string(const RunInfo&, const DeviceInfo&)>& of) {
  std::set<std::string> values;
  for (const JobProcess& p : job.processes)
    for (const DeviceInfo& d : p.run.devices) values.insert(of(p.run, d));
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + (value.empty() ? "none" : value);
  return text;
}

Json figure_json(const ComparedFigure& f) {
  Json j;
  j["a"] = number_or_null(f.a);
  j["b"] = number_or_null(f.b);
  j["change"] = number_or_null(f.change);
  return j;
}

const ComparedFigure* figure_of(const ComparedRegion& r, std::string_view key) {
  for (const ComparedFigure& f : r.figures)
    if (f.key == key) return &f;
  return nullptr;
}

}  // namespace

Comparison compare(const Job& a, const Job& b) {
  Comparison comparison;
  comparison.a = &a;
  comparison.b = &b;
  std::vector<std::string> names;
  for (const Job* job : {&a, &b})
    for (const JobRegion& r : job->regions)
      if (std::find(names.begin(), names.end(), r.name) == names.end()) names.push_back(r.name);
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name != "total"; });
  for (const std::string& name : names) {
    const JobRegion* of_a = a.find(name);
    const JobRegion* of_b = b.find(name);
    ComparedRegion r;
    r.name = name;
    r.in_a = of_a != nullptr;
    r.in_b = of_b != nullptr;
    const auto figure = [&](std::string_view key) {
      const RegionFigure* f = find_figure(key);
      return compared(f->key, of_a ? f->of(*of_a) : std::nullopt, of_b ? f->of(*of_b) : std::nullopt);
    };
    r.mfu = figure("mfu");
    for (const RegionFigure& f : region_figures())
      if (f.compared && f.key != "mfu") r.figures.push_back(figure(f.key));
    for (std::size_t c = 0; c < kTimeClasses; ++c) r.classes[c].key = kTimeClassNames[c];
    if (of_a && of_b) {
      const RegionSummary& x = of_a->sum();
      const RegionSummary& y = of_b->sum();
      const bool known = x.classes_known && y.classes_known;
      const bool lost = known && x.lost && y.lost;
      const auto parts_a = lost ? x.lost : of_a->totals.weights.time_shares();
      const auto parts_b = lost ? y.lost : of_b->totals.weights.time_shares();
      if (known && parts_a && parts_b) {
        r.basis = lost ? ComparedRegion::Basis::kMfu : ComparedRegion::Basis::kTime;
        for (std::size_t c = 0; c < kTimeClasses; ++c)
          r.classes[c] = compared(kTimeClassNames[c], (*parts_a)[c], (*parts_b)[c]);
      }
      r.kernels = compared_kernels(x, y);
    }
    r.words = words_of(r);
    comparison.regions.push_back(std::move(r));
  }

  const auto differ = [&](std::string_view what,
                          const std::function<std::string(const RunInfo&, const DeviceInfo&)>& of,
                          std::string_view so) {
    const std::string x = facts_of(a, of);
    const std::string y = facts_of(b, of);
    if (x != y) comparison.remarks.push_back(fmt::format("{}: A {}, B {}{}", what, x, y, so));
  };
  differ(
      "GPU", [](const RunInfo&, const DeviceInfo& d) { return d.name; }, "");
  differ(
      "peak", [](const RunInfo&, const DeviceInfo& d) { return scaled_text(d.peak_flop_per_s, "FLOP/s"); },
      ": a point of MFU is not the same work in both");
  differ(
      "dtype of the peak", [](const RunInfo&, const DeviceInfo& d) { return d.dtype + (d.sparse ? " sparse" : ""); },
      "");
  differ(
      "convention", [](const RunInfo& r, const DeviceInfo&) { return r.convention; },
      ": FLOP were counted differently");
  const auto models = [](const RunInfo& r, const DeviceInfo&) { return r.model_json; };
  if (facts_of(a, models) != facts_of(b, models)) comparison.remarks.push_back("the models are not the same");
  if (a.processes.size() != b.processes.size())
    comparison.remarks.push_back(fmt::format("processes: A {}, B {}", a.processes.size(), b.processes.size()));
  for (const auto& [job, name] : {std::pair(&a, "A"), std::pair(&b, "B")})
    for (const JobWarning& w : job->warnings)
      if (w.kind == "suspect" || w.kind == "unfinished" || w.kind == "left_out" || w.kind == "ranks" ||
          w.kind == "clock")
        comparison.remarks.push_back(fmt::format("{}: {}", name, w.message));
  return comparison;
}

std::string comparison_json(const Comparison& comparison) {
  Json j;
  j["v"] = 1;
  for (const auto& [job, name] : {std::pair(comparison.a, "a"), std::pair(comparison.b, "b")}) {
    j[name]["path"] = job->path;
    j[name].update(job_json(*job));
  }
  j["regions"] = Json::array();
  for (const ComparedRegion& r : comparison.regions) {
    Json entry;
    entry["region"] = r.name;
    entry["in"] = r.in_a && r.in_b ? "both" : r.in_a ? "a" : "b";
    entry["basis"] = r.basis == ComparedRegion::Basis::kMfu    ? Json("mfu")
                     : r.basis == ComparedRegion::Basis::kTime ? Json("time")
                                                               : Json(nullptr);
    entry["mfu"] = figure_json(r.mfu);
    for (const ComparedFigure& c : r.classes) entry["classes"][std::string(c.key)] = figure_json(c);
    for (const ComparedFigure& f : r.figures) entry["figures"][std::string(f.key)] = figure_json(f);
    entry["kernels"] = Json::array();
    for (const ComparedKernel& k : r.kernels)
      entry["kernels"].push_back({{"name", k.name},
                                  {"class", std::string(name(k.kernel_class))},
                                  {"a_s", number_or_null(k.a_s)},
                                  {"b_s", number_or_null(k.b_s)}});
    entry["words"] = r.words;
    j["regions"].push_back(std::move(entry));
  }
  j["remarks"] = comparison.remarks;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string comparison_text(const Comparison& comparison) {
  std::string text = fmt::format("A {}\nB {}\n", comparison.a->path, comparison.b->path);
  text += fmt::format("{:<16} {:>8} {:>8} {:>7} | {:>9} {:>7} {:>7} {:>7} {:>7} | {:>9} {:>9} | {:>9} {:>9}\n",
                      "B - A, points", "MFU A", "MFU B", "MFU", "matmul", "other", "comm", "copy", "idle", "p50 A",
                      "p50 B", "p99 A", "p99 B");
  for (const ComparedRegion& r : comparison.regions) {
    text += fmt::format("{:<16} {:>8} {:>8} {:>7} |", r.name, percent_text(r.mfu.a), percent_text(r.mfu.b),
                        points_text(r.mfu.change));
    for (std::size_t c = 0; c < kTimeClasses; ++c)
      text += fmt::format(" {:>{}}", points_text(r.classes[c].change), c == 0 ? 9 : 7);
    for (const std::string_view key : {"latency.p50_s", "latency.p99_s"})
      text += fmt::format(" | {:>9} {:>9}", duration_text(figure_of(r, key)->a), duration_text(figure_of(r, key)->b));
    text += "\n";
  }
  for (const ComparedRegion& r : comparison.regions) text += r.words + "\n";
  for (const std::string& remark : comparison.remarks) text += "note: " + remark + "\n";
  return text;
}

std::string comparison_markdown(const Comparison& comparison) {
  std::string text = fmt::format("# MFU: {} against {}\n\nA: {}\nB: {}\n\n", markdown_text(comparison.b->path),
                                 markdown_text(comparison.a->path), markdown_text(comparison.a->path),
                                 markdown_text(comparison.b->path));
  text +=
      "| region | MFU A | MFU B | change | matmul | other | comm | copy | idle | each A | each B | p50 A | p50 B | p99 "
      "A "
      "| p99 B |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const ComparedRegion& r : comparison.regions) {
    text += fmt::format("| {} | {} | {} | {} |", markdown_text(r.name), percent_text(r.mfu.a), percent_text(r.mfu.b),
                        points_text(r.mfu.change));
    for (const ComparedFigure& c : r.classes) text += fmt::format(" {} |", points_text(c.change));
    for (const std::string_view key : {"each_s", "latency.p50_s", "latency.p99_s"})
      text += fmt::format(" {} | {} |", duration_text(figure_of(r, key)->a), duration_text(figure_of(r, key)->b));
    text += "\n";
  }
  text += "\nChanges are B - A in percentage points; those of MFU and of the five classes add up to 0.\n\n";
  for (const ComparedRegion& r : comparison.regions) text += fmt::format("- {}\n", markdown_text(r.words));
  if (!comparison.remarks.empty()) text += "\n## To know\n\n";
  for (const std::string& remark : comparison.remarks) text += fmt::format("- {}\n", markdown_text(remark));
  return text;
}

}  // namespace mfu
