#include "tools/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/rows/idle_causes.h"
#include "core/sinks/region_json.h"
#include "tools/job/model_facts.h"
#include "tools/job/region_figures.h"
#include "tools/report/escape.h"
#include "tools/report/outputs/json.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kIdleColumns = 80;  ///< for what the GPU of a run waited for
constexpr std::array<std::string_view, kTimeClasses> kLostNames{"matmul loss", "other", "comm", "copy", "idle"};
constexpr std::array<std::string_view, kTimeClasses> kTimeNames{"matmul", "other", "comm", "copy", "idle"};

/// \param ratio of 0..1: where one of the two is not, there is no change to speak of.
ComparedFigure compared(std::string_view key, std::optional<double> a, std::optional<double> b, bool ratio) {
  const bool both = a && b && (!ratio || (is_possible(*a) && is_possible(*b)));
  return {key, a, b, both ? std::optional(*b - *a) : std::nullopt};
}

/// The divisor of kernel times, so that runs of different length can be compared.
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
  sorted.reserve(kernels.size());
  for (auto& [name, kernel] : kernels) sorted.push_back(std::move(kernel));
  const auto change = [](const ComparedKernel& k) { return std::fabs(k.b_s.value_or(0) - k.a_s.value_or(0)); };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const ComparedKernel& x, const ComparedKernel& y) { return change(x) > change(y); });
  return sorted;
}

std::string_view class_name(const ComparedRegion& region, std::size_t c) {
  return region.basis == ComparedRegion::Basis::kMfu ? kLostNames[c] : kTimeNames[c];
}

const ComparedFigure* figure_of(const ComparedRegion& r, std::string_view key) {
  for (const ComparedFigure& f : r.figures)
    if (f.key == key) return &f;
  return nullptr;
}

/// `+3.1 %` of A's value.
std::string relative_text(const ComparedFigure* f) {
  return f != nullptr && f->a && f->b && *f->a != 0 ? fmt::format("{:+.1f} %", 100 * (*f->b / *f->a - 1)) : "-";
}

/// `step: 504 ktoken/s to 470 ktoken/s (-6.7 %); MFU 40.2 % to 38.1 %, -2.1 points: idle +3.0, other -0.9`
std::string words_of(const ComparedRegion& r) {
  if (!r.in_b) return fmt::format("{} is only in A", r.name);
  if (!r.in_a) return fmt::format("{} is only in B", r.name);
  std::string text = r.name + ": ";
  const ComparedFigure* tokens = figure_of(r, "tokens_per_s");
  if (tokens != nullptr && tokens->a && tokens->b)
    text += fmt::format("{} to {} ({}); ", scaled_text(tokens->a, "token/s"), scaled_text(tokens->b, "token/s"),
                        relative_text(tokens));
  if (r.basis == ComparedRegion::Basis::kMfu)
    text +=
        fmt::format("MFU {} to {}, {} points", percent_text(r.mfu.a), percent_text(r.mfu.b), points_text(r.mfu.change));
  else
    text +=
        r.basis == ComparedRegion::Basis::kTime
            ? fmt::format("MFU {}; shares of time",
                          is_possible(r.mfu.a.value_or(0)) && is_possible(r.mfu.b.value_or(0)) ? "unknown" : "suspect")
            : "nothing to compare";
  std::vector<std::pair<double, std::string_view>> parts;
  for (std::size_t c = 0; c < kTimeClasses && r.basis != ComparedRegion::Basis::kNone; ++c)
    if (std::fabs(*r.classes[c].change) >= 0.0005) parts.emplace_back(*r.classes[c].change, class_name(r, c));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& x, const auto& y) { return std::fabs(x.first) > std::fabs(y.first); });
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? ": " : ", ", parts[i].second, points_text(parts[i].first));
  if (const ComparedFigure* each = figure_of(r, "each_s"); each != nullptr && each->a && each->b && *each->a > 0)
    text += fmt::format("; {} to {} each ({})", duration_text(each->a), duration_text(each->b), relative_text(each));
  if (const ComparedFigure* cost = figure_of(r, "cost_per_million_tokens"); cost != nullptr && cost->a && cost->b)
    text += fmt::format("; {:.3g} to {:.3g} per million tokens ({})", *cost->a, *cost->b, relative_text(cost));
  return text;
}

/// `workload.batch` > `16` for every value of a JSON document that is no list.
void flatten(const Json& json, const std::string& path, std::map<std::string, std::string>& into) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      std::string inner = path;
      if (!path.empty()) inner += '.';
      flatten(value, inner.append(key), into);
    }
  } else {
    std::string text = json.is_string() ? json.get<std::string>() : text_of(json);
    constexpr std::size_t kShown = 60;
    if (text.size() > kShown) text = text.substr(0, kShown) + "...";
    into[printable(path)] = printable(text);
  }
}

/// The answers of a job's processes to one question, each once.
using Facts = std::map<std::string, std::set<std::string>>;

Facts facts_of(const Job& job) {
  Facts facts;
  const auto add = [&](const std::string& what, const std::string& value) {
    if (!value.empty()) facts[what].insert(value);
  };
  for (const JobProcess& p : job.processes) {
    for (const DeviceInfo& d : p.run.devices) {
      add("GPU", d.name);
      add("peak", fmt::format("{} {}{}", scaled_text(d.peak_flop_per_s, "FLOP/s"), d.dtype, d.sparse ? " sparse" : ""));
      add("bandwidth", scaled_text(d.peak_bytes_per_s, "B/s"));
    }
    add("FLOP counted", p.run.convention);
    add("mfuinject", p.run.version);
    add("CUPTI", p.run.cupti_version != 0 ? std::to_string(p.run.cupti_version) : "");
    std::map<std::string, std::string> config;
    const Json resolved = Json::parse(p.run.config_json, nullptr, /*allow_exceptions=*/false);
    if (resolved.is_object()) flatten(resolved, "", config);
    // Where the config lay says nothing about the run.
    for (const auto& [key, value] : config)
      if (key != "model_source") add(key, value);
    if (const double params = model_facts(p.run).params; params > 0) add("parameters", count_text(params));
  }
  if (!job.trace) add("processes", std::to_string(job.processes.size()));
  for (const JobRegion& r : job.regions)
    if (r.name != "total" && r.sum().tokens != 0 && r.sum().instances != 0)
      add(r.name + ": tokens per instance",
          count_text(static_cast<double>(r.sum().tokens) / static_cast<double>(r.sum().instances)));
  return facts;
}

std::vector<Difference> differences_of(const Job& a, const Job& b) {
  Facts of_a = facts_of(a), of_b = facts_of(b);
  std::vector<Difference> found;
  std::set<std::string> keys;
  for (const Facts* facts : {&of_a, &of_b})
    for (const auto& [key, values] : *facts) keys.insert(key);
  for (const std::string& key : keys)
    if (of_a[key] != of_b[key]) found.push_back({key, joined(of_a[key], "-"), joined(of_b[key], "-")});
  // Settings that a person changed first, those that follow from the machine last.
  const auto rank = [](const Difference& d) {
    return d.what.find("tokens per instance") != std::string::npos || d.what.starts_with("workload") ? 0
           : d.what == "GPU" || d.what == "peak" || d.what == "parameters" || d.what == "processes"  ? 1
                                                                                                     : 2;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Difference& x, const Difference& y) { return rank(x) < rank(y); });
  return found;
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
      return compared(f->key, of_a ? f->of(*of_a) : std::nullopt, of_b ? f->of(*of_b) : std::nullopt,
                      f->unit == Unit::kRatio && f->key != "clock_ratio");
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
          r.classes[c] = compared(kTimeClassNames[c], (*parts_a)[c], (*parts_b)[c], true);
      }
      r.kernels = compared_kernels(x, y);
    }
    r.words = words_of(r);
    const std::string idle_a = of_a ? idle_text(of_a->sum(), kIdleColumns) : "",
                      idle_b = of_b ? idle_text(of_b->sum(), kIdleColumns) : "";
    if (idle_a != idle_b)
      r.words += fmt::format("; idle: {} to {}", idle_a.empty() ? "-" : idle_a, idle_b.empty() ? "-" : idle_b);
    comparison.regions.push_back(std::move(r));
  }

  comparison.differences = differences_of(a, b);
  for (const Difference& d : comparison.differences) {
    if (d.what == "peak")
      comparison.remarks.emplace_back("the peaks differ: a point of MFU is not the same work in both");
    if (d.what == "FLOP counted") comparison.remarks.emplace_back("FLOP were counted differently");
  }
  for (const auto& [job, name] : {std::pair(&a, "A"), std::pair(&b, "B")})
    for (const JobWarning& w : job->warnings)
      if (w.kind == "suspect" || w.kind == "unfinished" || w.kind == "left_out" || w.kind == "ranks" ||
          w.kind == "clock" || w.kind == "untimed")
        comparison.remarks.push_back(fmt::format("{}: {}", name, w.message));
  return comparison;
}

namespace {

Json figure_json(const ComparedFigure& f) {
  return {{"a", number_or_null(f.a)}, {"b", number_or_null(f.b)}, {"change", number_or_null(f.change)}};
}

}  // namespace

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
  j["differences"] = Json::array();
  for (const Difference& d : comparison.differences)
    j["differences"].push_back({{"what", d.what}, {"a", d.a}, {"b", d.b}});
  j["remarks"] = comparison.remarks;
  return text_of(j);
}

namespace {

/// The last names of a path, `parts` of them.
std::string end_of(std::string_view path, std::size_t parts) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (path.empty()) return "";
  std::size_t at = path.size();
  for (; parts != 0 && at != std::string_view::npos && at != 0; --parts) at = path.rfind('/', at - 1);
  return std::string(at == std::string_view::npos ? path : path.substr(at + (path[at] == '/' ? 1 : 0)));
}

}  // namespace

std::string comparison_title(const Comparison& comparison) {
  const std::string &a = comparison.a->path, &b = comparison.b->path;
  std::size_t parts = 1;
  constexpr std::size_t kMostParts = 3;
  while (parts < kMostParts && end_of(a, parts) == end_of(b, parts)) ++parts;
  std::string title = end_of(b, parts) + " against " + end_of(a, parts);
  for (const ComparedRegion& r : comparison.regions) {
    if (r.name == "total" || r.basis != ComparedRegion::Basis::kMfu) continue;
    const ComparedFigure* tokens = figure_of(r, "tokens_per_s");
    if (const std::string change = relative_text(tokens); change != "-")
      return fmt::format("{}: {} {} token/s", title, r.name, change);
    return fmt::format("{}: {} {} points of MFU", title, r.name, points_text(r.mfu.change));
  }
  return title;
}

std::string comparison_text(const Comparison& comparison) {
  std::string text = fmt::format("A  {}\nB  {}\n", printable(comparison.a->path), printable(comparison.b->path));
  if (!comparison.differences.empty()) text += "\ndiffers\n";
  for (const Difference& d : comparison.differences) text += fmt::format("  {:<28} {} -> {}\n", d.what, d.a, d.b);
  text +=
      fmt::format("\n{:<16} {:>12} {:>12} {:>8} | {:>8} {:>8} {:>7} | {:>9} {:>9} {:>8} | {:>9} {:>9}\n", "region",
                  "token/s A", "token/s B", "", "MFU A", "MFU B", "points", "each A", "each B", "", "p99 A", "p99 B");
  for (const ComparedRegion& r : comparison.regions) {
    const ComparedFigure* tokens = figure_of(r, "tokens_per_s");
    const ComparedFigure* each = figure_of(r, "each_s");
    const ComparedFigure* p99 = figure_of(r, "latency.p99_s");
    text += fmt::format("{:<16} {:>12} {:>12} {:>8} | {:>8} {:>8} {:>7} | {:>9} {:>9} {:>8} | {:>9} {:>9}\n", r.name,
                        scaled_text(tokens->a, ""), scaled_text(tokens->b, ""), relative_text(tokens),
                        percent_text(r.mfu.a), percent_text(r.mfu.b), points_text(r.mfu.change), duration_text(each->a),
                        duration_text(each->b), relative_text(each), duration_text(p99->a), duration_text(p99->b));
  }
  text += fmt::format("\n{:<16} {:>11} {:>7} {:>7} {:>7} {:>7}   points of the elapsed time, B - A\n", "where from",
                      "matmul", "other", "comm", "copy", "idle");
  for (const ComparedRegion& r : comparison.regions) {
    if (r.basis == ComparedRegion::Basis::kNone) continue;
    text += fmt::format("{:<16}", r.name);
    for (std::size_t c = 0; c < kTimeClasses; ++c)
      text += fmt::format(" {:>{}}", points_text(r.classes[c].change), c == 0 ? 11 : 7);
    text += "\n";
  }
  text += "\n";
  for (const auto& [name, job] : {std::pair('A', comparison.a), std::pair('B', comparison.b)})
    if (const std::string life = job->life.text(); !life.empty()) text += fmt::format("{}  {}\n", name, life);
  for (const ComparedRegion& r : comparison.regions) text += r.words + "\n";
  for (const std::string& remark : comparison.remarks) text += "note: " + printable(remark) + "\n";
  return text;
}

std::string comparison_markdown(const Comparison& comparison) {
  std::string text =
      fmt::format("### MFU: {} against {}\n\n", markdown_text(comparison.b->path), markdown_text(comparison.a->path));
  if (!comparison.differences.empty()) text += "| differs | A | B |\n|---|---|---|\n";
  for (const Difference& d : comparison.differences)
    text += fmt::format("| {} | {} | {} |\n", markdown_text(d.what), markdown_text(d.a), markdown_text(d.b));
  if (!comparison.differences.empty()) text += "\n";
  text +=
      "| region | token/s A | token/s B | | MFU A | MFU B | points | each A | each B | | p99 A | p99 B |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const ComparedRegion& r : comparison.regions) {
    const ComparedFigure* tokens = figure_of(r, "tokens_per_s");
    const ComparedFigure* each = figure_of(r, "each_s");
    const ComparedFigure* p99 = figure_of(r, "latency.p99_s");
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", markdown_text(r.name),
                        scaled_text(tokens->a, ""), scaled_text(tokens->b, ""), relative_text(tokens),
                        percent_text(r.mfu.a), percent_text(r.mfu.b), points_text(r.mfu.change), duration_text(each->a),
                        duration_text(each->b), relative_text(each), duration_text(p99->a), duration_text(p99->b));
  }
  text += "\n";
  for (const ComparedRegion& r : comparison.regions) text += fmt::format("- {}\n", markdown_text(r.words));
  text +=
      "\n<details><summary>Where the change comes from</summary>\n\n"
      "| region | MFU | matmul | other | comm | copy | idle |\n|---|--:|--:|--:|--:|--:|--:|\n";
  for (const ComparedRegion& r : comparison.regions) {
    text += fmt::format("| {} | {} |", markdown_text(r.name), points_text(r.mfu.change));
    for (const ComparedFigure& c : r.classes) text += fmt::format(" {} |", points_text(c.change));
    text += "\n";
  }
  text +=
      "\nChanges are B - A in percentage points of the elapsed time; those of MFU and of the five classes add up to "
      "0.\n\n"
      "</details>\n";
  if (!comparison.remarks.empty()) text += "\nCaveats:\n\n";
  for (const std::string& remark : comparison.remarks) text += fmt::format("- {}\n", markdown_text(remark));
  return text;
}

}  // namespace mfu
