// Numbers for people, against what a person would write.
#include "core/base/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mfu {
namespace {

TEST(NumberText, PercentHasOneSpaceAndOneDecimal) {
  EXPECT_EQ(percent_text(0.409), "40.9 %");
  EXPECT_EQ(percent_text(1.0), "100.0 %");
  EXPECT_EQ(percent_text(std::nullopt), "-");
  EXPECT_EQ(percent_text(std::nullopt, 0.37199), ">= 37.1 %");
  EXPECT_EQ(percent_text(std::nullopt, 0.001, "%"), ">=0.1%");
  EXPECT_EQ(percent_text(std::nullopt, 0.00099, ""), ">=0.09");
  EXPECT_EQ(percent_text(std::nullopt, 0.00001), ">= 0.00 %");
  EXPECT_EQ(percent_text(std::nullopt, 0.0), ">= 0.0 %");
  EXPECT_EQ(percent_text(std::nullopt, 1.0), ">= 100.0 %");
  EXPECT_EQ(percent_text(std::nullopt, 1.01), "suspect") << "more than all of the peak is no bound";
  EXPECT_EQ(percent_text(0.3, 0.25), "30.0 %") << "the figure itself is known";
  EXPECT_EQ(percent_text(std::nullopt, std::nullopt), "-");
  EXPECT_EQ(points_text(0.0131), "+1.3");
  EXPECT_EQ(points_text(-0.00001), "0.0");
}

TEST(NumberText, ARatioThatCannotBeTrueIsNoFigure) {
  for (const double ratio : {1.0011, 2.223, 1e300, -0.001, -2.022, -1e300, std::nan("")}) {
    EXPECT_EQ(percent_text(ratio), "suspect") << ratio;
    EXPECT_FALSE(possible(ratio)) << ratio;
  }
  // Rounding of what it was worked out from.
  EXPECT_EQ(percent_text(1.0009), "100.0 %");
  EXPECT_EQ(percent_text(-1e-12), "0.0 %");
  EXPECT_EQ(percent_text(-0.0), "0.0 %");
}

TEST(NumberText, ZeroHasNoSign) {
  for (const double zero : {-0.0, -1e-12, -1e-15, -1e-300}) {
    EXPECT_EQ(duration_text(zero), "0 s") << zero;
    for (const std::string& text : {scaled_text(zero, "B"), count_text(zero), compact_text(zero), points_text(zero)})
      EXPECT_EQ(text.find('-'), std::string::npos) << text;
  }
}

TEST(NumberText, DurationsFromNanosecondsToDays) {
  EXPECT_EQ(duration_text(0.0), "0 s");
  EXPECT_EQ(duration_text(123e-9), "123 ns");
  EXPECT_EQ(duration_text(502e-6), "502 µs");
  EXPECT_EQ(duration_text(33.32e-3), "33.3 ms");
  EXPECT_EQ(duration_text(12.0), "12 s");
  EXPECT_EQ(duration_text(120.5), "2.01 min");
  EXPECT_EQ(duration_text(4 * 3600.0), "4 h");
  EXPECT_EQ(duration_text(57 * 86400.0), "57 days");
  EXPECT_EQ(duration_text(std::nullopt), "-");
}

TEST(NumberText, CountsAndRates) {
  EXPECT_EQ(count_text(8.19e9), "8.19 B");
  EXPECT_EQ(count_text(1.74e12), "1.74 T");
  EXPECT_EQ(count_text(124'439'808.0), "124 M");
  EXPECT_EQ(count_text(96.0), "96");
  EXPECT_EQ(scaled_text(989.4e12, "FLOP/s"), "989 TFLOP/s");
  EXPECT_EQ(scaled_text(999.6, "B"), "1.00 kB");
  EXPECT_EQ(compact_text(1.73e6), "1.73M");
  EXPECT_EQ(compact_text(15.9e3), "15.9k");
  EXPECT_EQ(compact_text(512), "512");
}

TEST(NumberText, NothingIsLongerThanAPersonReads) {
  for (const double value : {std::numeric_limits<double>::max(), 1e300, 1e60, 1e25, 1e-300, 5e-324}) {
    for (const double sign : {1.0, -1.0}) {
      EXPECT_LT(scaled_text(sign * value, "FLOP").size(), 16u) << value;
      EXPECT_LT(count_text(sign * value).size(), 14u) << value;
      EXPECT_LT(compact_text(sign * value).size(), 14u) << value;
      EXPECT_LT(percent_text(sign * value).size(), 14u) << value;
    }
    EXPECT_LT(duration_text(value).size(), 16u) << value;
  }
}

TEST(NumberText, ThreeSignificantDigitsEverywhere) {
  for (double value = 1.0003e-8; value < 1e14; value *= 1.37) {
    const std::string text = scaled_text(value, "");
    const double shown = std::strtod(text.c_str(), nullptr);
    double expected = value;
    for (const char c : {'k', 'M', 'G', 'T', 'P'}) {
      if (text.find_first_of("kMGTP") == std::string::npos) break;
      expected /= 1000;
      if (text.back() == c) break;
    }
    if (value >= 1) {
      EXPECT_NEAR(shown / expected, 1, 0.005) << text;
    }
  }
}

}  // namespace
}  // namespace mfu
