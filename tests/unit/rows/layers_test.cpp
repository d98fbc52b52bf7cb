// Rows of layers, and the line that people see of them.
#include "core/rows/layers.h"

#include <gtest/gtest.h>

namespace mfu {
namespace {

TEST(LayerName, IsReadFromTheNameOfARegion) {
  for (const auto& [region, pass, layer] :
       std::initializer_list<std::tuple<const char*, const char*, std::optional<std::uint32_t>>>{
           {"layer 0", "forward", 0},
           {"layer 12 backward", "backward", 12},
           {"layer 3 decode", "decode", 3},
           {"outside of layers", "forward", std::nullopt},
           {"outside of layers prefill", "prefill", std::nullopt}}) {
    const std::optional<LayerName> name = layer_name(region);
    ASSERT_TRUE(name.has_value()) << region;
    EXPECT_EQ(name->pass, pass);
    EXPECT_EQ(name->layer, layer);
  }
  for (const char* other : {"", "layer", "layer ", "layer x", "layer 3backward", "layers 3", "outside", "step",
                            "outside of layersx", "layer 99999999999"})
    EXPECT_FALSE(layer_name(other).has_value()) << other;
}

RegionSummary row(const char* region, DurationNs median_ns, DurationNs elapsed_ns) {
  RegionSummary r;
  r.region = region;
  r.device = 0;
  r.instances = 4;
  r.elapsed_ns = elapsed_ns;
  r.latency.count = 4;
  r.latency.p50_ns = median_ns;
  return r;
}

TEST(LayerLines, OneForEachPassWithTheSlowestLayer) {
  std::vector<RegionSummary> rows{
      row("step", 90'000'000, 400'000'000),  row("outside of layers", 50'000'000, 200'000'000),
      row("layer 0", 2'000'000, 8'000'000),  row("layer 1", 2'000'000, 9'000'000),
      row("layer 2", 3'000'000, 12'000'000), row("layer 0 backward", 4'000'000, 16'000'000)};
  rows.back().executed.emplace();
  rows.back().executed->matmul_ns = rows.back().executed->covered_ns = 8'000'000;
  rows.back().executed->ideal_ns = 4'000'000;
  const std::vector<std::string> lines = layer_lines(rows);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "layers of forward@gpu0: 3, each 2 ms; slowest layer 2: 3 ms (1.50 of the median)");
  EXPECT_EQ(lines[1], "layers of backward@gpu0: 1, each 4 ms HFU 25.0%; slowest layer 0: 4 ms (1.00 of the median)");
  EXPECT_TRUE(layer_lines({rows.front()}).empty());
}

}  // namespace
}  // namespace mfu
