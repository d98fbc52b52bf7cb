// Joules of rows: a device with known watts, windows with known times, a counter that is read at their ends.
#include "core/energy/energy_account.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace mfu {
namespace {

constexpr double kPrefillW = 700, kDecodeW = 400, kIdleW = 95;

RegionSummary row(const char* region, double busy_s, double idle_s, std::int64_t tokens, Phase phase = Phase::kNone) {
  RegionSummary r;
  r.region = region;
  r.device = 0;
  r.elapsed_ns = static_cast<DurationNs>((busy_s + idle_s) * 1e9);
  r.time_ns[static_cast<std::size_t>(TimeClass::kMatmul)] = static_cast<DurationNs>(busy_s * 1e9);
  r.time_ns[static_cast<std::size_t>(TimeClass::kIdle)] = static_cast<DurationNs>(idle_s * 1e9);
  r.tokens = tokens;
  r.phase = phase;
  return r;
}

const RegionSummary& of(const WindowSummary& window, const char* region) {
  for (const RegionSummary& r : window.regions)
    if (r.region == region) return r;
  ADD_FAILURE() << region;
  return window.regions.front();
}

/// A server's windows of 10 s. \param every how many windows lie between two readings.
struct Server {
  std::mt19937 random{11};
  EnergyAccount account;
  double joules = 50'000, prefill_j = 0, decode_j = 0;
  std::int64_t prefilled = 0, decoded = 0;
  int made = 0, every = 1;
  bool overlapped = false, nested = false;

  WindowSummary next() {
    const auto uniform = [&](double from, double to) {
      return std::uniform_real_distribution<double>(from, to)(random);
    };
    const double prefill = uniform(0.5, 4), decode = uniform(2, 5), inside = uniform(0, 0.3);
    const auto tokens = static_cast<std::int64_t>(prefill * 20'000), output = static_cast<std::int64_t>(decode * 900);
    joules += prefill * kPrefillW + decode * kDecodeW + (10 - prefill - decode) * kIdleW;
    if (made++ >= every) {  // the first reading is at the end of the first windows
      prefill_j += prefill * kPrefillW;
      decode_j += decode * kDecodeW + inside * kIdleW;
      prefilled += tokens;
      decoded += output;
    }
    WindowSummary window;
    window.window = {(made - 1) * 10 * kNsPerSecond, made * 10 * kNsPerSecond};
    window.regions.push_back(row("prefill", prefill, 0, tokens, Phase::kPrefill));
    window.regions.push_back(row("decode", decode, inside, output, Phase::kDecode));
    if (nested) {
      window.regions.push_back(row("attention", decode / 2, 0, 0));
      window.regions.back().nested = true;
    }
    window.regions.back().overlapped = overlapped;
    window.regions.push_back(row("total", prefill + decode, 10 - prefill - decode, tokens + output));
    account.add(window, reader());
    return window;
  }
  WindowSummary whole_run() {
    WindowSummary run;
    run.final_run = true;
    for (const char* region : {"prefill", "decode", "total"}) run.regions.push_back(row(region, 1, 1, 1));
    account.add(run, reader());
    return run;
  }
  EnergyAccount::ReadCounter reader() {
    return [this](std::uint32_t, TimeNs) {
      return made % every == 0 ? std::optional(EnergyReading{joules, 4}) : std::nullopt;
    };
  }
};

TEST(EnergyAccount, TheTotalIsWhatTheCounterSays) {
  for (const int every : {1, 3}) {
    Server server;
    server.every = every;
    double before = 0, sum = 0, first = 0;
    std::int64_t tokens = 0;
    for (int i = 0; i < 30; ++i) {
      const WindowSummary window = server.next();
      const RegionSummary& total = of(window, "total");
      tokens += total.tokens;
      const bool read = (i + 1) % every == 0;
      EXPECT_EQ(total.energy.has_value(), read && i >= every) << i;
      if (total.energy) {
        EXPECT_NEAR(total.energy->joules, server.joules - before, 1e-6);
        EXPECT_EQ(total.energy->method, EnergyMethod::kCounter);
        EXPECT_EQ(total.energy->tokens, tokens);
        EXPECT_NEAR(*total.joules_per_token, total.energy->joules / static_cast<double>(tokens), 1e-12);
        sum += total.energy->joules;
      }
      if (!read) continue;
      before = server.joules;
      tokens = 0;
      if (first == 0) first = server.joules;
    }
    const WindowSummary run = server.whole_run();
    EXPECT_NEAR(of(run, "total").energy->joules, sum, 1e-6);
    EXPECT_NEAR(sum, server.joules - first, 1e-6);
    EXPECT_EQ(of(run, "total").energy->tokens, server.prefilled + server.decoded);
    EXPECT_EQ(of(run, "total").energy->output_tokens, server.decoded);
    EXPECT_EQ(of(run, "total").energy->error, 8);
  }
}

TEST(EnergyAccount, PhasesThatShareWindowsAreToldApart) {
  for (const bool nested : {false, true}) {
    Server server;
    server.nested = nested;
    for (int i = 0; i < 60; ++i) {
      const WindowSummary window = server.next();
      if (i >= 20) {
        ASSERT_TRUE(of(window, "prefill").energy) << i;
        EXPECT_EQ(of(window, "prefill").energy->method, EnergyMethod::kFit);
      }
    }
    const WindowSummary run = server.whole_run();
    for (const auto& [region, joules, tokens] : {std::tuple{"prefill", server.prefill_j, server.prefilled},
                                                 std::tuple{"decode", server.decode_j, server.decoded}}) {
      const auto& energy = of(run, region).energy;
      ASSERT_TRUE(energy) << region;
      EXPECT_NEAR(energy->joules / joules, 1, 0.01) << region;
      EXPECT_LE(std::abs(energy->joules - joules), energy->error) << region;
      EXPECT_EQ(energy->tokens, tokens);
      EXPECT_NEAR(*energy->idle_w, kIdleW, 3);
    }
    EXPECT_FALSE(of(run, "prefill").joules_per_output_token);
    EXPECT_NEAR(*of(run, "decode").joules_per_output_token, server.decode_j / static_cast<double>(server.decoded),
                0.01 * *of(run, "decode").joules_per_output_token);
  }
}

TEST(EnergyAccount, ATotalWithTokensOfAPartOfItsWorkHasNoJoulesPerToken) {
  EnergyAccount account;
  double joules = 0;
  for (int i = 0; i < 3; ++i) {
    WindowSummary window;
    window.window = {i * 10 * kNsPerSecond, (i + 1) * 10 * kNsPerSecond};
    window.regions = {row("prefill", 4, 0, 0, Phase::kPrefill), row("decode", 5, 0, 90, Phase::kDecode),
                      row("total", 9, 1, 90)};
    for (RegionSummary& r : window.regions) r.instances = 1;
    account.add(window, [&](std::uint32_t, TimeNs) { return EnergyReading{joules += 5000, 4}; });
    if (i == 0) continue;
    ASSERT_TRUE(of(window, "total").energy.has_value());
    EXPECT_EQ(of(window, "total").energy->tokens, 0);
    EXPECT_EQ(of(window, "total").energy->output_tokens, 90);
    EXPECT_FALSE(of(window, "total").joules_per_token.has_value());
  }
}

TEST(EnergyAccount, RegionsThatOverlapHaveNone) {
  Server server;
  server.overlapped = true;
  for (int i = 0; i < 40; ++i) {
    const WindowSummary window = server.next();
    EXPECT_FALSE(of(window, "prefill").energy);
    EXPECT_EQ(of(window, "total").energy.has_value(), i > 0);
  }
}

TEST(EnergyAccount, OneRegionThatTakesAllHasTheCountersJoules) {
  EnergyAccount account;
  double joules = 0;
  for (int i = 0; i < 3; ++i) {
    joules += 10 * 650;
    WindowSummary window;
    window.regions = {row("step", 9, 0.95, 1000), row("total", 9, 1, 1000)};
    account.add(window, [&](std::uint32_t, TimeNs) { return EnergyReading{joules, 65}; });
    EXPECT_EQ(of(window, "step").energy.has_value(), i > 0);
    if (i == 0) continue;
    EXPECT_NEAR(*of(window, "step").joules_per_token, 6.5, 0.05);
    EXPECT_LE(std::abs(of(window, "step").energy->joules - 6500), of(window, "step").energy->error);
  }
}

TEST(EnergyAccount, ACounterThatIsSetBackSaysNothingOfThatSpan) {
  Server server;
  for (int i = 0; i < 6; ++i) {
    if (i == 3) server.joules = 0;
    const WindowSummary window = server.next();
    EXPECT_EQ(of(window, "total").energy.has_value(), i != 0 && i != 3) << i;
  }
}

}  // namespace
}  // namespace mfu
