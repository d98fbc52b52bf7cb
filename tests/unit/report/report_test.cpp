// Jobs, assertions, comparisons and every form a report can have, from histories made up here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "core/base/number_text.h"
#include "tests/unit/report/fake_job.h"
#include "tests/unit/rows/impossible.h"
#include "tools/job/region_figures.h"
#include "tools/report/assertion.h"
#include "tools/report/compare.h"
#include "tools/report/outputs/csv.h"
#include "tools/report/outputs/json.h"
#include "tools/report/outputs/markdown.h"
#include "tools/report/outputs/perfetto.h"
#include "tools/report/outputs/table.h"

namespace mfu {
namespace {

using nlohmann::json;
using testing_job::history;
using testing_job::job_of;
using testing_job::kStart;
using testing_job::serving;

template <typename Writer>
std::string written(const std::vector<RunHistory>& histories) {
  std::ostringstream out;
  Writer writer(out);
  for (const RunHistory& h : histories) writer.process(h);
  writer.finish(job_of(histories));
  return out.str();
}

// --- jobs -----------------------------------------------------------------------------------------------------------

TEST(Job, RanksAreWeighted) {
  const Job job = job_of({history(0, {60, 20, 0, 0, 20}, 0.5), history(1, {30, 20, 0, 0, 50}, 0.25)});
  ASSERT_EQ(job.regions.size(), 2u);
  EXPECT_EQ(job.regions.back().name, "total");
  const RegionSummary& step = job.find("step")->sum();
  EXPECT_NEAR(*step.mfu, 0.375, 1e-12);  // the same peak and time: the mean
  EXPECT_EQ(step.elapsed_ns, 8 * kNsPerSecond);
  EXPECT_NEAR((*step.lost)[4], 0.35, 1e-12);
  EXPECT_EQ(step.instances, 80u);
  EXPECT_EQ(job.launches.seen, 8000u);
  EXPECT_EQ(job.find("step")->processes, 2u);
  EXPECT_EQ(job.find("decode"), nullptr);
}

TEST(Job, WithoutAnEndTheWindowsAreSummed) {
  const Job whole = job_of({history(0, {60, 20, 0, 0, 20}, 0.5)});
  const Job killed = job_of({history(0, {60, 20, 0, 0, 20}, 0.5, false)});
  const RegionSummary& a = whole.find("step")->sum();
  const RegionSummary& b = killed.find("step")->sum();
  EXPECT_NEAR(*a.mfu, *b.mfu, 1e-12);
  EXPECT_EQ(a.elapsed_ns, b.elapsed_ns);
  EXPECT_EQ(a.instances, b.instances);
  EXPECT_EQ(a.time_ns, b.time_ns);
  EXPECT_NE(job_text(whole).find("launches 4000 ="), std::string::npos);
  EXPECT_EQ(job_text(killed).find("\nlaunches "), std::string::npos);
  EXPECT_TRUE(whole.processes[0].ended);
  EXPECT_FALSE(killed.processes[0].ended);
  EXPECT_EQ(killed.processes_without_account, 1u);
  EXPECT_TRUE(std::any_of(killed.warnings.begin(), killed.warnings.end(),
                          [](const JobWarning& w) { return w.kind == "unfinished"; }));
}

TEST(Job, SaysWhichRanksAreNotHere) {
  RunHistory h = history(2, {60, 20, 0, 0, 20}, 0.5);
  h.run.world_size = 8;
  const Job job = job_of({h});
  const auto warning =
      std::find_if(job.warnings.begin(), job.warnings.end(), [](const JobWarning& w) { return w.kind == "ranks"; });
  ASSERT_NE(warning, job.warnings.end());
  EXPECT_EQ(warning->message, "7 of 8 ranks are not here: 0-1, 3-7");
}

TEST(Job, TheSameWarningOfManyRanksIsOne) {
  std::vector<RunHistory> histories;
  for (int rank = 0; rank < 5; ++rank) {
    histories.push_back(history(rank, {60, 20, 0, 0, 20}, 0.5));
    histories.back().events = {{kStart, "cupti_taken", "CUPTI is taken"}};
  }
  const Job job = job_of(histories);
  ASSERT_EQ(job.warnings.size(), 1u);
  EXPECT_EQ(job.warnings[0].count, 5u);
}

TEST(Job, AnswersInWords) {
  EXPECT_EQ(job_of({history(0, {40, 10, 5, 5, 40}, 0.25)}).find("step")->words,
            "40.0 % of step is idle: nothing ran on the GPU");
  EXPECT_EQ(job_of({history(0, {90, 0, 5, 0, 5}, 0.25)}).find("step")->words,
            "65.0 % of step is matmul loss: matmul kernels ran, but slower than the peak");
  EXPECT_EQ(
      job_of({history(0, {30, 60, 5, 0, 5}, 0.25)}).find("total")->words,
      "60.0 % of the process's time is other kernels: only compute kernels other than matmuls ran, softmax most of "
      "all");
  RunHistory without = history(0, {90, 0, 5, 0, 5}, 0.25);
  without.run.model_json = "null";
  for (RegionSummary& r : without.end->regions) {
    r.flop = r.mfu = std::nullopt;
    r.lost = std::nullopt;
  }
  const Job job = job_of({without});
  EXPECT_EQ(job.find("step")->words, "90.0 % of step is matmul: matmul kernels ran");
  EXPECT_EQ(job.find("step")->why_no_mfu, "the run had no model config (MFU_MODEL_CONFIG)");
}

// --- assertions -----------------------------------------------------------------------------------------------------

TEST(Assertion, Grammar) {
  struct Case {
    const char* text;
    const char* region;
    const char* figure;
    const char* op;
    double bound;
  };
  for (const Case& c :
       {Case{"step.mfu>=0.40", "step", "mfu", ">=", 0.4}, Case{" step.mfu >= 40% ", "step", "mfu", ">=", 0.4},
        Case{"decode.latency.p99_s<=2ms", "decode", "latency.p99_s", "<=", 2e-3},
        Case{"decode.p99_s < 150 us", "decode", "latency.p99_s", "<", 150e-6},
        Case{"step.each_s<1.5s", "step", "each_s", "<", 1.5},
        Case{"total.lost.idle<0.1", "total", "lost.idle", "<", 0.1},
        Case{"my.own.region.mbu>1e-2", "my.own.region", "mbu", ">", 0.01},
        Case{"step.instances==40", "step", "instances", "==", 40}, Case{"step.kernels!=0", "step", "kernels", "!=", 0},
        Case{"a b.time_s.comm<-1", "a b", "time_s.comm", "<", -1}}) {
    const Result<Assertion> a = parse_assertion(c.text);
    ASSERT_TRUE(a) << c.text << ": " << a.error().message;
    EXPECT_EQ(a->region, c.region) << c.text;
    EXPECT_EQ(a->figure, c.figure) << c.text;
    EXPECT_EQ(a->op, c.op) << c.text;
    EXPECT_DOUBLE_EQ(a->bound, c.bound) << c.text;
  }
}

TEST(Assertion, WhatIsWrongIsNamed) {
  for (const auto& [text, words] :
       {std::pair("step.mfu", "no >=, <=, >, <, == or !="), std::pair("step.mfu=0.4", "'=' is no comparison"),
        std::pair("mfu>=0.4", "'mfu' is no REGION.FIGURE"), std::pair("step.mfoo>=0.4", ", mfu, mfu_busy, hfu, mbu"),
        std::pair(".mfu>=0.4", "'.mfu'"), std::pair("step.mfu>=", "'' is no number"),
        std::pair("step.mfu>=high", "'high' is no number"), std::pair("step.mfu>=0.4.1", "'0.4.1' is no number"),
        std::pair("step.mfu>=nan", "'nan' is no number"), std::pair("step.mfu>=0.4ms", "'0.4ms' is no number"),
        std::pair("", "no >=")}) {
    const Result<Assertion> a = parse_assertion(text);
    ASSERT_FALSE(a) << text;
    EXPECT_NE(a.error().message.find(words), std::string::npos) << text << ": " << a.error().message;
  }
}

TEST(Assertion, HoldsOrSaysWhatIs) {
  const Job job = job_of({history(0, {60, 20, 0, 0, 20}, 0.5)});
  const auto verdict = [&job](const char* text) { return *check(*parse_assertion(text), job); };
  EXPECT_TRUE(verdict("step.mfu>=0.49").holds);
  EXPECT_TRUE(verdict("step.mfu<51%").holds);
  EXPECT_TRUE(verdict("step.instances==40").holds);
  EXPECT_FALSE(verdict("step.instances!=40").holds);
  EXPECT_TRUE(verdict("step.each_s<=100ms").holds);
  EXPECT_EQ(verdict("step.mfu>=0.49").message, "ok step.mfu 0.5 >= 0.49");
  const Verdict no = verdict("step.mfu>=0.6");
  EXPECT_FALSE(no.holds);
  EXPECT_EQ(no.message, "step.mfu>=0.6 does not hold: step.mfu is 0.5");
  const Verdict unknown = verdict("step.mbu>=0");
  EXPECT_FALSE(unknown.holds);
  EXPECT_NE(unknown.message.find("step.mbu is unknown: the bytes"), std::string::npos) << unknown.message;
  const Result<Verdict> missing = check(*parse_assertion("decode.mfu>=0.1"), job);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no region 'decode'; there are step, total"), std::string::npos);
}

TEST(Assertion, AChangeIsRelativeInPercentAndElseInTheUnit) {
  const Job before = job_of({history(0, {60, 20, 0, 0, 20}, 0.5)});
  const Job after = job_of({history(0, {60, 20, 0, 0, 20}, 0.48)});
  const auto verdict = [&](const char* text) { return *check_change(*parse_assertion(text), before, after); };
  EXPECT_TRUE(verdict("step.mfu>=-5%").holds);  // 0.48 / 0.5 is 4 % less
  EXPECT_FALSE(verdict("step.mfu>=-3%").holds);
  EXPECT_TRUE(verdict("step.mfu>=-0.03").holds);  // 0.02 less
  EXPECT_FALSE(verdict("step.mfu>=-0.01").holds);
  EXPECT_TRUE(verdict("step.each_s<=+1ms").holds);
  EXPECT_EQ(verdict("step.mfu>=-3%").message, "step.mfu>=-3% does not hold: step.mfu went from 0.5 to 0.48, -4.00 %");
  EXPECT_EQ(verdict("step.mfu>=-5%").message, "ok step.mfu -4.00 % >= -5 %: 0.5 to 0.48");
  EXPECT_NE(verdict("step.mbu>=-1%").message.find("unknown in A"), std::string::npos);
  EXPECT_FALSE(check_change(*parse_assertion("decode.mfu>=0.1"), before, after));
}

TEST(Assertion, EveryFigureIsInTheJson) {
  const Job job = job_of({serving(0)});
  const json region = json::parse(job_json(job).dump())["regions"][0];
  for (const RegionFigure& figure : region_figures()) {
    std::string pointer = "/" + std::string(figure.key);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    if (figure.key == "ranks") pointer = "/processes";
    const std::optional<double> of = figure.of(job.regions[0]);
    if (!of && !region.contains(json::json_pointer(pointer))) continue;  // of an object that is null or left out
    ASSERT_TRUE(region.contains(json::json_pointer(pointer))) << figure.key;
    const json& value = region.at(json::json_pointer(pointer));
    ASSERT_EQ(value.is_null(), !of) << figure.key;
    if (of) {
      EXPECT_DOUBLE_EQ(value.get<double>(), *of) << figure.key;
    }
  }
}

// --- comparisons ----------------------------------------------------------------------------------------------------

TEST(Compare, ChangesSumToZero) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto share = [&random] {
    std::array<int, kTimeClasses> s{};
    int left = 100;
    for (std::size_t c = 0; c + 1 < kTimeClasses; ++c) left -= s[c] = static_cast<int>(random() % (left + 1));
    s[4] = left;
    return s;
  };
  for (int round = 0; round < 50; ++round) {
    const auto [x, y] = std::pair(share(), share());
    const Job a = job_of({history(0, x, 0.009 * x[0]), history(1, y, 0.009 * y[0])});
    const Job b = job_of({history(0, y, 0.008 * y[0])});
    const Comparison comparison = compare(a, b);
    ASSERT_EQ(comparison.regions.size(), 2u);
    for (const ComparedRegion& r : comparison.regions) {
      ASSERT_EQ(r.basis, ComparedRegion::Basis::kMfu);
      double sum = *r.mfu.change;
      for (const ComparedFigure& c : r.classes) sum += *c.change;
      EXPECT_NEAR(sum, 0, 1e-12) << r.name;
      EXPECT_DOUBLE_EQ(*r.mfu.change, *r.mfu.b - *r.mfu.a);
    }
    const json j = json::parse(comparison_json(comparison));
    EXPECT_EQ(j["regions"][0]["region"], "step");
    EXPECT_DOUBLE_EQ(j["regions"][0]["mfu"]["change"].get<double>(), *comparison.regions[0].mfu.change);
  }
}

TEST(Compare, WithoutMfuSharesOfTimeAreCompared) {
  RunHistory h = history(0, {40, 30, 0, 0, 30}, 0.2);
  for (RegionSummary& r : h.end->regions) {
    r.flop = r.mfu = r.hfu = r.mfu_busy = std::nullopt;
    r.lost = std::nullopt;
  }
  const Job a = job_of({h});
  const Job b = job_of({history(0, {60, 20, 0, 0, 20}, 0.5)});
  const Comparison comparison = compare(a, b);
  const ComparedRegion& step = comparison.regions[0];
  EXPECT_EQ(step.basis, ComparedRegion::Basis::kTime);
  EXPECT_FALSE(step.mfu.change);
  EXPECT_NEAR(*step.classes[0].change, 0.2, 1e-12);
  double sum = 0;
  for (const ComparedFigure& c : step.classes) sum += *c.change;
  EXPECT_NEAR(sum, 0, 1e-12);
}

TEST(Compare, RegionsOfOneRunAndOtherDenominators) {
  RunHistory h = history(0, {40, 30, 0, 0, 30}, 0.2);
  h.end->regions[0].region = "decode";
  h.run.devices[0].peak_flop_per_s = 500e12;
  const Job a = job_of({h});
  const Job b = job_of({history(0, {60, 20, 0, 0, 20}, 0.5)});
  const Comparison comparison = compare(a, b);
  ASSERT_EQ(comparison.regions.size(), 3u);
  EXPECT_EQ(comparison.regions[0].words, "decode is only in A");
  EXPECT_EQ(comparison.regions[1].words, "step is only in B");
  ASSERT_FALSE(comparison.remarks.empty());
  EXPECT_EQ(comparison.remarks[0], "the peaks differ: a point of MFU is not the same work in both");
  const auto peak = std::find_if(comparison.differences.begin(), comparison.differences.end(),
                                 [](const Difference& d) { return d.what == "peak"; });
  ASSERT_NE(peak, comparison.differences.end());
  EXPECT_EQ(peak->a.substr(0, 11), "500 TFLOP/s");
  EXPECT_EQ(peak->b.substr(0, 9), "1 PFLOP/s");
  EXPECT_NE(comparison_text(comparison).find("only in B"), std::string::npos);
  EXPECT_NE(comparison_markdown(comparison).find("| decode |"), std::string::npos);
}

// --- forms ----------------------------------------------------------------------------------------------------------

std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"')
        fields.back() += line[++i];
      else
        quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

TEST(Csv, OneRowPerRegionAndWindowUnderAFixedHeader) {
  std::vector<RunHistory> histories{history(0, {60, 20, 0, 0, 20}, 0.5), history(1, {60, 20, 0, 0, 20}, 0.5, false)};
  histories[0].windows[0].regions[0].region = "a \"strange\",\nname";
  const std::string text = written<CsvWriter>(histories);
  std::vector<std::vector<std::string>> rows;
  std::size_t at = 0;
  for (std::size_t end = text.find("\r\n"); end != std::string::npos; end = text.find("\r\n", at)) {
    rows.push_back(csv_fields(text.substr(at, end - at)));
    at = end + 2;
  }
  EXPECT_EQ(at, text.size());
  ASSERT_EQ(rows.size(), 1u + 2 * 4 * 2);
  const std::vector<std::string>& header = rows[0];
  EXPECT_EQ(header, csv_fields(csv_header()));
  const auto column = [&header](const char* name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  for (const auto& fields : rows) EXPECT_EQ(fields.size(), header.size());
  EXPECT_EQ(rows[1][column("region")], "a \"strange\",?name");
  EXPECT_EQ(rows[1][column("rank")], "0");
  EXPECT_EQ(rows[9][column("rank")], "1");
  EXPECT_EQ(rows[2][column("t0_ns")], std::to_string(kStart));
  EXPECT_EQ(std::stod(rows[2][column("mfu")]), *histories[0].windows[0].regions[1].mfu);
  EXPECT_EQ(std::stod(rows[2][column("lost_idle")]), (*histories[0].windows[0].regions[1].lost)[4]);
  EXPECT_EQ(rows[2][column("mbu")], "");  // unknown, not 0
  EXPECT_EQ(rows[2][column("named_by")], "");
}

TEST(Csv, SingleInstancesAreInTheLastColumns) {
  const std::string text = written<CsvWriter>({serving(0)});
  const std::vector<std::string> header = csv_fields(csv_header());
  const std::size_t first = text.find("\r\n") + 2;
  const std::vector<std::string> fields = csv_fields(text.substr(first, text.find("\r\n", first) - first));
  ASSERT_EQ(fields.size(), header.size());
  const auto value = [&](const char* name) {
    return fields[static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin())];
  };
  EXPECT_EQ(value("inter_token_p99_s"), "0.1");
  EXPECT_EQ(value("prefill_to_decode_p50_s"), "0.1");
  EXPECT_EQ(value("after_prefill"), "4");
  EXPECT_EQ(value("slowest_nth"), "3");
  EXPECT_EQ(value("slowest_t0_ns"), std::to_string(kStart));
  EXPECT_EQ(value("slowest_s"), "0.5");
  EXPECT_EQ(value("slowest_lost_to"), "comm");
  EXPECT_EQ(value("slowest_excess_s"), "0.07");
  EXPECT_EQ(value("latency_by_batch"), "sequences 5-8: p50=0.1 p99=0.1");
  EXPECT_EQ(header[44], "named_by") << "columns are only ever added at the end";
  EXPECT_EQ(fields[44], "range");
}

TEST(Job, TheSlowestOfAllRanksSayWhereTheyWere) {
  const Job job = job_of({serving(0), serving(2), serving(1)});
  const json step = json::parse(job_json(job).dump())["regions"][0];
  ASSERT_EQ(step["slowest"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(step["slowest"][i]["where"], "rank " + std::to_string(2 - i) + " gpu0");
    EXPECT_EQ(step["slowest"][i]["nth"], 3);
    EXPECT_EQ(step["slowest"][i]["lost_to"], "comm");
  }
  EXPECT_EQ(step["by_batch"][0]["instances"], 30);
  EXPECT_NEAR(step["by_batch"][0]["mfu"].get<double>(), 0.5, 1e-12);
  EXPECT_EQ(step["after_prefill"], 12);
  EXPECT_NE(
      job_text(job).find("\nslowest of step: rank 2 gpu0 #3 502 ms (comm +70 ms), rank 1 gpu0 #3 501 ms (comm +70 "
                         "ms), rank 0 gpu0 #3 500 ms (comm +70 ms)\n"),
      std::string::npos)
      << job_text(job);
  const std::string markdown = job_markdown(job);
  EXPECT_NE(markdown.find("| step | 5-8 | sequences | 30 | 100 ms | 100 ms | 100 ms | 100 ms | 50.0 % | - | 20"),
            std::string::npos)
      << markdown;
  EXPECT_NE(markdown.find("| step | rank 2 gpu0 | 3 | 0 s | 502 ms | comm | 70 ms |"), std::string::npos) << markdown;
  // One rank: the table's own line.
  EXPECT_NE(job_text(job_of({serving(0)})).find("\n  slowest (median 100 ms): #3 500 ms (comm +70 ms)\n"),
            std::string::npos);
  const auto holds = [&](const char* text) { return check(*parse_assertion(text), job)->holds; };
  EXPECT_TRUE(holds("step.inter_token_s.p99<101ms"));
  EXPECT_FALSE(holds("step.prefill_to_decode_s.p50<99ms"));
  EXPECT_TRUE(holds("step.after_prefill==12"));
  const auto unknown =
      check(*parse_assertion("step.inter_token_s.p99<1"), job_of({history(0, {60, 20, 0, 0, 20}, 0.5)}));
  EXPECT_FALSE(unknown->holds);
  EXPECT_NE(unknown->message.find("nothing in it decodes"), std::string::npos) << unknown->message;
}

TEST(Json, RunsAndJob) {
  const std::vector<RunHistory> histories{history(0, {60, 20, 0, 0, 20}, 0.5),
                                          history(1, {60, 20, 0, 0, 20}, 0.25, false)};
  const json j = json::parse(written<JsonWriter>(histories));
  EXPECT_EQ(j["v"], 1);
  ASSERT_EQ(j["runs"].size(), 2u);
  EXPECT_EQ(j["runs"][0]["rank"], 0);
  EXPECT_EQ(j["runs"][0]["complete"], true);
  EXPECT_EQ(j["runs"][0]["launches"]["seen"], 4000);
  EXPECT_EQ(j["runs"][0]["windows"].size(), 8u);
  EXPECT_EQ(j["runs"][1]["complete"], false);
  EXPECT_TRUE(j["runs"][1]["launches"].is_null());
  EXPECT_EQ(j["runs"][1]["regions"].size(), 2u);
  EXPECT_EQ(j["job"]["regions"][0]["region"], "step");
  EXPECT_NEAR(j["job"]["regions"][0]["mfu"].get<double>(), 0.375, 1e-12);
  EXPECT_EQ(j["job"]["processes"], 2);
  EXPECT_EQ(j["job"]["complete"], 1);
  EXPECT_EQ(j["job"]["counters"]["records_unmatched"], 7);
}

TEST(Perfetto, SlicesAndCounters) {
  std::vector<RunHistory> histories{history(0, {60, 20, 0, 0, 20}, 0.5)};
  histories[0].events = {{kStart + 5, "clock", "slow"}};
  histories[0].windows.erase(histories[0].windows.begin() + 2);  // a gap: the counters fall to 0 in it
  const json j = json::parse(written<PerfettoWriter>(histories));
  EXPECT_EQ(j["baseTimeNanoseconds"], kStart);
  std::size_t slices = 0, names = 0, zeros = 0;
  for (const json& e : j["traceEvents"]) {
    if (e["ph"] == "X") {
      ++slices;
      EXPECT_EQ(e["dur"], 1e6);
      EXPECT_EQ(e["args"]["mfu"], *histories[0].windows[0].regions[0].mfu);
    }
    if (e["ph"] == "M" && e["name"] == "process_name") {
      ++names;
      EXPECT_EQ(e["args"]["name"], "rank 0 (node, pid 100)");
    }
    if (e["ph"] == "C" && e["name"] == "step@gpu0 MFU %") {
      const double value = e["args"]["MFU %"];
      if (value == 0)
        ++zeros;
      else
        EXPECT_NEAR(value, 50, 1e-9);
    }
  }
  EXPECT_EQ(slices, 6u);
  EXPECT_EQ(names, 1u);
  EXPECT_EQ(zeros, 2u);  // at the gap, and after the last window
}

TEST(Format, ThreeDigitsAndUnits) {
  EXPECT_EQ(duration_text(0.0333), "33.3 ms");
  EXPECT_EQ(duration_text(1.5e-6), "1.50 µs");
  EXPECT_EQ(duration_text(90000.0), "25 h");
  EXPECT_EQ(duration_text(1280.0), "21.3 min");
  EXPECT_EQ(duration_text(std::nullopt), "-");
  EXPECT_EQ(scaled_text(989.4e12, "FLOP/s"), "989 TFLOP/s");
  EXPECT_EQ(scaled_text(3.35e12, "B/s"), "3.35 TB/s");
  EXPECT_EQ(percent_text(0.4022), "40.2 %");
  EXPECT_EQ(points_text(-0.0211), "-2.1");
  EXPECT_EQ(points_text(0.00004), "0.0");
  EXPECT_EQ(utc_text(kStart), "2026-11-21 19:30:38 UTC");
}

// --- figures that cannot be ------------------------------------------------------------------------------------------

/// A run with random rows, read back as a file is.
RunHistory random_history(std::mt19937& random) {
  RunHistory h = serving(0);
  const auto change = [&](RegionSummary& r) {
    testing_impossible::make_random(r, random);
    doubt_impossible(r);  // as the reader of run files does
  };
  for (WindowSummary& window : h.windows) std::for_each(window.regions.begin(), window.regions.end(), change);
  std::for_each(h.end->regions.begin(), h.end->regions.end(), change);
  if (random() % 2 == 0) h.end.reset();
  return h;
}

TEST(Impossible, NoOutputHasAFigureAboveAHundredPercentOrANegativePart) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const RunHistory a = random_history(random), b = random_history(random);
    const Job job_a = job_of({a}), job_b = job_of({b});
    const Comparison comparison = compare(job_a, job_b);
    for (const std::string& text : {job_text(job_a), job_markdown(job_a)})
      EXPECT_EQ(testing_impossible::in_text(text), std::vector<std::string>{}) << text;
    for (const std::string& text : {comparison_text(comparison), comparison_markdown(comparison)}) {
      EXPECT_EQ(testing_impossible::in_text(text, false), std::vector<std::string>{}) << text;
      EXPECT_EQ(text.find("-0.0 "), std::string::npos) << text;
    }
    for (const JobRegion& r : job_a.regions)
      for (const auto& ratio : {r.sum().mfu, r.sum().hfu, r.sum().mbu, r.sum().mfu_lower, r.sum().mbu_lower})
        EXPECT_TRUE(!ratio || possible(ratio) || !r.sum().suspect.empty()) << r.name << " has no cause";
    // Columns of ratios are 0..1 or empty, and then the column `suspect` is not.
    std::istringstream lines(written<CsvWriter>({a}));
    std::vector<std::vector<std::string>> rows;
    for (std::string line; std::getline(lines, line);) {
      std::vector<std::string>& row = rows.emplace_back(1);
      bool quoted = false;
      for (const char c : line) {
        if (c == '"') quoted = !quoted;
        if (c == ',' && !quoted)
          row.emplace_back();
        else if (c != '"' && c != '\r')
          row.back().push_back(c);
      }
    }
    for (std::size_t c = 0; c < rows.front().size(); ++c) {
      const std::string& name = rows.front()[c];
      if (name != "mfu" && name != "hfu" && name != "mbu" && name != "mfu_busy" && name != "mfu_lower" &&
          name != "mbu_lower" && !name.starts_with("lost_"))
        continue;
      for (std::size_t r = 1; r < rows.size(); ++r) {
        if (rows[r][c].empty()) continue;
        EXPECT_TRUE(is_possible(std::stod(rows[r][c]))) << name << " " << rows[r][c];
      }
    }
  }
}

TEST(Impossible, AnAssertionOnASuspectFigureDoesNotHold) {
  RunHistory h = history(0, {60, 20, 0, 0, 20}, 0.5);
  for (RegionSummary& r : h.end->regions) {
    r.flop = r.hfu_flop = 10 * *r.flop;
    r.mfu = r.hfu = 5.0;
    doubt_impossible(r);
  }
  const Job job = job_of({h});
  const auto verdict = check(*parse_assertion("step.mfu>=0.4"), job);
  ASSERT_TRUE(verdict.ok());
  EXPECT_FALSE(verdict->holds);
  EXPECT_NE(verdict->message.find("step.mfu is suspect: mfu_over_100"), std::string::npos) << verdict->message;
  const auto change = check_change(*parse_assertion("step.mfu>=-3%"), job, job);
  ASSERT_TRUE(change.ok());
  EXPECT_FALSE(change->holds);
  EXPECT_NE(job_markdown(job).find("| suspect |"), std::string::npos);
  EXPECT_NE(job_markdown(job).find("- step is suspect: mfu_over_100"), std::string::npos) << job_markdown(job);
}

}  // namespace
}  // namespace mfu
