// Bars, histories and text of `mfu top`, cell by cell.
#include "tools/top/glyphs.h"

#include "core/base/printable.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tests/unit/top/line_text.h"

namespace mfu {
namespace {

/// The characters of valid UTF-8.
std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> all;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) all.emplace_back();
    all.back() += c;
  }
  return all;
}

/// Eighths of a column that each style covers in a bar, read back from its characters.
std::map<Style, int> eighths_of(const ScreenLine& line) {
  const std::map<std::string, int> filled{{" ", 0}, {"▏", 1}, {"▎", 2}, {"▍", 3}, {"▌", 4},
                                          {"▋", 5}, {"▊", 6}, {"▉", 7}, {"█", 8}};
  std::map<Style, int> sums;
  for (const Span& span : line) {
    for (const std::string& c : characters(span.text)) {
      sums[span.style] += filled.at(c);
      sums[span.behind] += 8 - filled.at(c);
    }
  }
  return sums;
}

TEST(BarTest, BlocksEndOnEighthsOfAColumn) {
  const BarShares shares{0.40, 0.20, 0.15, 0.05, 0.0, 0.20};
  const ScreenLine line = bar(shares, 10, Glyphs::kBlocks);
  EXPECT_EQ(columns(text_of(line)), 10u);
  const auto eighths = eighths_of(line);  // of 80
  EXPECT_EQ(eighths.at(Style::kMfu), 32);
  EXPECT_EQ(eighths.at(Style::kMatmul), 16);
  EXPECT_EQ(eighths.at(Style::kOther), 12);
  EXPECT_EQ(eighths.at(Style::kComm), 4);
  EXPECT_EQ(eighths.at(Style::kIdle), 16);
}

TEST(BarTest, PartsNeverTakeMoreThanThereIs) {
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    BarShares shares{};
    for (double& s : shares) s = static_cast<double>(random() % 1000);
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0) + 1;
    for (double& s : shares) s /= sum;
    const std::size_t width = random() % 60;
    for (const Glyphs glyphs : {Glyphs::kAscii, Glyphs::kBlocks})
      EXPECT_EQ(columns(text_of(bar(shares, width, glyphs))), width);
    if (width == 0) continue;
    // A part that begins and ends within one column may lose what it has there: less than a column in all per edge.
    const auto eighths = eighths_of(bar(shares, width, Glyphs::kBlocks));
    for (std::size_t k = 0; k < shares.size(); ++k) {
      const auto found = eighths.find(kBarParts[k].style);
      const int here = found == eighths.end() ? 0 : found->second;
      EXPECT_NEAR(here, shares[k] * 8 * static_cast<double>(width), 16) << k << " of width " << width;
    }
  }
  EXPECT_EQ(text_of(bar(std::nullopt, 5, Glyphs::kBlocks)), "     ");
  EXPECT_EQ(text_of(bar(BarShares{2, 2, 2, 2, 2, 2}, 4, Glyphs::kAscii)), "####");
  EXPECT_EQ(text_of(bar(BarShares{-1, 0.5, 0, 0, 0, 0.5}, 4, Glyphs::kAscii)), "==..");
}

TEST(HistoryTest, BrailleHasTwoValuesPerColumnAndFourDotsPerLine) {
  // 0, a quarter, half, three quarters, all: dots from below.
  const std::vector<std::optional<double>> values{0.25, 0.5, 0.75, 1.0};
  EXPECT_EQ(history_lines(values, 2, 1, 1.0, Glyphs::kBlocks), std::vector<std::string>{"⣠⣾"});
  EXPECT_EQ(history_lines(values, 3, 1, 1.0, Glyphs::kBlocks).front(), "⠀⣠⣾") << "the newest at the right";
  EXPECT_EQ(history_lines(values, 5, 1, 1.0, Glyphs::kBlocks).front(), "⠀⣀⣤⣶⣿") << "one per column where all fit";
  EXPECT_EQ(history_lines(values, 1, 1, 1.0, Glyphs::kBlocks).front(), "⣾") << "the newest stay";
  const auto tall = history_lines(values, 2, 2, 1.0, Glyphs::kBlocks);
  EXPECT_EQ(tall, (std::vector<std::string>{"⠀⣼", "⣼⣿"}));
  EXPECT_EQ(history_lines({0.001, std::nullopt}, 1, 1, 1.0, Glyphs::kBlocks).front(), "⡀")
      << "something is never nothing, and nothing known is a gap";
  EXPECT_EQ(history_lines({0.25, 0.5}, 1, 1, 0.5, Glyphs::kBlocks).front(), "⣼") << "by the upper edge";
  EXPECT_EQ(history_lines({0.0, 0.55, 3.0, std::nullopt}, 4, 1, 1.0, Glyphs::kAscii).front(), "059 ");
  for (const std::string& line : history_lines({}, 7, 3, 1.0, Glyphs::kBlocks)) EXPECT_EQ(columns(line), 7u);
}

TEST(WrapTest, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("a straggler costs 2 points", 12), (std::vector<std::string>{"a straggler", "costs 2", "points"}));
  EXPECT_EQ(flow({"one", "", "two", "three"}, 8), (std::vector<std::string>{"one  two", "three"}));
  EXPECT_EQ(right("7", 3), "  7");
  EXPECT_EQ(left("décode", 4), "déc~");
}

TEST(FitTest, CutsByCharactersAndKeepsOutWhatIsNoText) {
  EXPECT_EQ(fit("décode", 10), "décode");
  EXPECT_EQ(fit("décode", 4), "déc~");
  EXPECT_EQ(fit("a\nb\x1b", 10), "a?b?");
  EXPECT_EQ(fit("\xc3", 4), "?");
  EXPECT_EQ(fit("\xc2\x9b"
                "31m",
                10),
            "??31m")
      << "CSI as one character";
  EXPECT_EQ(fit("abc", 0), "");
  EXPECT_EQ(columns("décode"), 6u);
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::size_t width = random() % 30;
    const std::string cut = fit(text, width);
    EXPECT_LE(columns(cut), width);
    EXPECT_EQ(fit(cut, width), cut);
  }
}

}  // namespace
}  // namespace mfu
