// Watts of phases that share spans: drawn runs in which the truth is known.
#include "core/energy/energy_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace mfu {
namespace {

constexpr std::uint32_t kIdle = 0, kPrefill = 2, kDecode = 3;
constexpr double kFirstW = 700, kSecondW = 400, kRestW = 95;

/// A counter that changes once in a period: what it shows at t is the truth of the last change.
struct Counter {
  double period;
  double shown = 0;
  [[nodiscard]] double late(std::mt19937& random, double watts) const {
    return watts * std::uniform_real_distribution<double>(0, period)(random);
  }
};

/// 60 spans of 10 s with shares that differ. \param spread how much the shares differ, 0..1.
EnergyFit drawn(std::mt19937& random, double period, double spread) {
  EnergyFit fit;
  const auto uniform = [&](double from, double to) { return std::uniform_real_distribution<double>(from, to)(random); };
  const Counter counter{period};
  double late = 0;
  for (int i = 0; i < 60; ++i) {
    const double idle = 10 * (0.1 + spread * uniform(0, 0.2));
    const double prefill = (10 - idle) * (0.3 + spread * uniform(-0.25, 0.25));
    const double decode = 10 - idle - prefill;
    // Watts of one batch are not those of another.
    const double truth =
        idle * kRestW + prefill * kFirstW * uniform(0.97, 1.03) + decode * kSecondW * uniform(0.97, 1.03);
    const double now = counter.late(random, truth / 10);
    fit.add({truth + late - now, truth / 10 * period, {{kIdle, idle}, {kPrefill, prefill}, {kDecode, decode}}});
    late = now;
  }
  return fit;
}

TEST(EnergyFit, TheTruthIsWithinTheError) {
  for (const double period : {0.01, 0.02, 0.1}) {
    std::mt19937 random(7);
    int known = 0, within = 0;
    for (int run = 0; run < 1000; ++run) {
      const EnergyFit fit = drawn(random, period, 1);
      for (const auto& [kind, truth] : {std::pair{kPrefill, kFirstW}, std::pair{kDecode, kSecondW}}) {
        const auto watts = fit.of(kind);
        if (!watts) continue;
        ++known;
        within += std::abs(watts->mean - truth) <= watts->error;
      }
    }
    EXPECT_GE(known, 1900) << period;
    EXPECT_GE(within, known * 94 / 100) << period;  // 95, of 2000 drawn: 1 less is chance
  }
}

TEST(EnergyFit, WhatDoesNotSeparateIsUnknown) {
  std::mt19937 random(3);
  for (int run = 0; run < 100; ++run) {
    const EnergyFit fit = drawn(random, 0.1, 0);
    EXPECT_FALSE(fit.of(kPrefill));
    EXPECT_FALSE(fit.of(kDecode));
  }
}

TEST(EnergyFit, AFewSpansSayNothing) {
  EnergyFit fit;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(fit.of(kPrefill));
    fit.add({100.0 * i, 1, {{kIdle, 5.0 - i}, {kPrefill, 5.0 + i}}});
  }
}

TEST(EnergyFit, ManyKindsOfWorkAreNotToldApart) {
  std::mt19937 random(1);
  EnergyFit fit;
  for (int i = 0; i < 100; ++i) {
    EnergyFit::Span span{1000, 1, {}};
    for (std::uint32_t kind = 0; kind < 20; ++kind)
      span.seconds.emplace_back(kind, std::uniform_real_distribution<double>(0, 1)(random));
    fit.add(span);
  }
  EXPECT_FALSE(fit.of(3));
}

}  // namespace
}  // namespace mfu
