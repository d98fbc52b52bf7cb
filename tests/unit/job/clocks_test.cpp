// Hosts whose clock is not the others', in jobs whose clocks are known.
#include "tools/job/clocks.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tools/job/job_report.h"

namespace mfu {
namespace {

constexpr TimeNs kClockStart = 1'795'000'000 * kNsPerSecond;

TEST(Clocks, AnyJobWhoseHostsAreShifted) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto in = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
    const auto ns = [](double s) { return static_cast<DurationNs>(s * 1e9); };
    const int hosts = 3 + static_cast<int>(random() % 8), ranks = 1 + static_cast<int>(random() % 8);
    std::vector<std::string> names;
    for (int h = 0; h < hosts; ++h) names.push_back("node" + std::to_string(h));
    const auto odd = static_cast<std::size_t>(random() % static_cast<unsigned>(hosts));
    const double shift = (random() % 2 == 0 ? 1 : -1) * in(60, 1e6), limit = 30, length = in(200, 1e5);
    const bool shifted = random() % 4 != 0, came_late = random() % 2 == 0;
    std::vector<ProcessTimes> processes;
    for (std::size_t h = 0; h < names.size(); ++h)
      for (int r = 0; r < ranks; ++r) {
        const DurationNs by = ns(h == odd && shifted ? shift : 0);
        // Without another clock: a host that begins later than the others, or ends before them, but not both.
        const double late = h == odd && !shifted && came_late ? 100 : in(0, 5);
        const double early = h == odd && !shifted && !came_late ? 100 : in(0, 5);
        processes.push_back({names[h], kClockStart + ns(late) + by, kClockStart + ns(length - early) + by});
      }
    const Clocks clocks = find_clocks(processes, ns(limit));
    EXPECT_EQ(clocks.size(), shifted ? 1u : 0u) << seed;
    if (shifted) {
      EXPECT_NEAR(seconds(ahead_of(clocks, names[odd])), shift, 10) << seed;
    }
    EXPECT_EQ(ahead_of(clocks, "another"), 0);
  }
}

TEST(Clocks, OneHostHasNoOther) {
  EXPECT_TRUE(find_clocks({{"a", kClockStart, kClockStart + 9}, {"a", kClockStart + 5, kClockStart + 14}}, 1).empty());
  EXPECT_TRUE(find_clocks({}, 1).empty());
}

/// A rank with ten windows of a second, all of them steps.
RunHistory steady_rank(std::int64_t rank, DurationNs ahead) {
  RunHistory h;
  h.source = std::to_string(rank);
  h.run.host = "node" + std::to_string(rank);
  h.run.rank = rank;
  h.run.world_size = 3;
  h.run.t_ns = h.run.began_ns = kClockStart + ahead;
  h.run.devices.emplace_back();
  for (int w = 0; w < 10; ++w) {
    WindowSummary& window = h.windows.emplace_back();
    window.window = {h.run.t_ns + w * kNsPerSecond, h.run.t_ns + (w + 1) * kNsPerSecond};
    RegionSummary& row = window.regions.emplace_back();
    row.region = "step";
    row.device = 0;
    row.window = window.window;
    row.elapsed_ns = kNsPerSecond;
    row.instances = 10;
  }
  h.end.emplace().window = {h.run.t_ns, h.windows.back().window.end_ns};
  return h;
}

TEST(Clocks, TheLifeOfAJobIsByOneClock) {
  for (const DurationNs ahead : {DurationNs{0}, 500 * kNsPerSecond, -500 * kNsPerSecond}) {
    JobBuilder builder("job", false);
    for (const std::int64_t rank : {0, 1, 2}) builder.add(steady_rank(rank, rank == 2 ? ahead : 0));
    const Job job = builder.finish();
    EXPECT_EQ(job.life.wall_ns, 10 * kNsPerSecond);
    EXPECT_DOUBLE_EQ(job.life.gpu_s(LifePart::kProductive), 30);
    EXPECT_DOUBLE_EQ(job.life.gpu_s(), 30);
    const auto said = std::count_if(job.warnings.begin(), job.warnings.end(),
                                    [](const auto& warning) { return warning.kind == "clock"; });
    EXPECT_EQ(said, ahead == 0 ? 0 : 1);
  }
}

}  // namespace
}  // namespace mfu
