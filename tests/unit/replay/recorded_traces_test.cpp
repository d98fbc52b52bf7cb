// Every figure of every recorded trace, exactly, and HolisticTraceAnalysis's own figures beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/replay/hta_figures.h"
#include "tools/replay/trace_figures.h"
#include "tools/trace/open_trace.h"

namespace mfu {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kFolder = fs::path(MFU_TEST_DATA) / "traces";

std::vector<std::string> names_of_traces() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".gz") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Json load(const fs::path& path) { return Json::parse(std::ifstream(path)); }

class RecordedTrace : public testing::TestWithParam<std::string> {};

TEST_P(RecordedTrace, EveryFigureAgrees) {
  const auto trace = open_trace((kFolder / GetParam()).string());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const Json got = Json::parse(report_json({make_report(trace.value())}));
  const std::string stem = GetParam().substr(0, GetParam().find('.'));
  const Json expected = load(kFolder / "expected" / (stem + ".expected.json"));
  // A difference as the steps that lead from one to the other: short, and with the path of each figure.
  EXPECT_EQ(got, expected) << Json::diff(expected, got).dump(1).substr(0, 4000);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedTrace, testing::ValuesIn(names_of_traces()),
                         [](const auto& test) { return test.param.substr(0, test.param.find('.')); });

TEST(RecordedTraces, AreAllThere) { EXPECT_EQ(names_of_traces().size(), 23u); }

TEST(RecordedTraces, AgreeWithHolisticTraceAnalysis) {
  const Json peer = load(kFolder / "peer_hta.json");
  ASSERT_FALSE(peer["figures"].empty());
  for (const auto& [name, figures] : peer["figures"].items()) {
    SCOPED_TRACE(name);
    const auto trace = open_trace((kFolder / name).string());
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    const auto f = hta_figures(trace.value());
    ASSERT_TRUE(f.has_value());
    const Json& breakdown = figures["temporal_breakdown"];
    EXPECT_EQ(static_cast<double>(f->idle_ns) / 1000, breakdown["idle_time(us)"]);
    EXPECT_EQ(static_cast<double>(f->compute_ns) / 1000, breakdown["compute_time(us)"]);
    EXPECT_EQ(static_cast<double>(f->non_compute_ns) / 1000, breakdown["non_compute_time(us)"]);
    EXPECT_EQ(static_cast<double>(f->kernel_ns) / 1000, breakdown["kernel_time(us)"]);
    EXPECT_EQ(f->rows_ending_before_they_start, figures["rows_ending_before_they_start"]);
    EXPECT_EQ(f->last_step_left_out, figures["selection"] == "last profiler step left out");
    const Json& overlap = figures["comp_comm_overlap_pctg"];
    EXPECT_EQ(f->comp_comm_overlap_percent.has_value(), !overlap.is_null());
    if (!overlap.is_null()) {
      EXPECT_NEAR(f->comp_comm_overlap_percent.value_or(-1), overlap.get<double>(), 1e-9);
    }
    Json types = figures["kernel_type_us"];
    for (auto at = types.begin(); at != types.end();) at = at.value() == 0 ? types.erase(at) : std::next(at);
    Json mine = Json::object();
    for (const auto& [type, us] : f->kernel_type_us) mine[type] = us;
    EXPECT_EQ(mine, types);
  }
}

}  // namespace
}  // namespace mfu
