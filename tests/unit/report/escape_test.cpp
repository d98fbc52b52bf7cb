// Names in the formats of the report.
#include "tools/report/escape.h"

#include <gtest/gtest.h>

namespace mfu {
namespace {

TEST(EscapeTest, ACsvCellIsNoFormula) {
  EXPECT_EQ(csv_text("=cmd|'/c calc'!A1"), "'=cmd|'/c calc'!A1");
  EXPECT_EQ(csv_text("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(csv_text("+x"), "'+x");
  EXPECT_EQ(csv_text("-1+cmd"), "'-1+cmd");
  EXPECT_EQ(csv_text("=a,\"b\""), "\"'=a,\"\"b\"\"\"");
}

TEST(EscapeTest, ANumberStaysOne) {
  for (const char* number : {"-0.25", "-1e-09", "12", "0", "-inf", ""}) EXPECT_EQ(csv_text(number), number);
}

TEST(EscapeTest, ACsvCellIsOneLine) { EXPECT_EQ(csv_text("a\r\nb\x1b[2J"), "a??b?[2J"); }

TEST(EscapeTest, MarkdownIsTextAndNothingElse) {
  EXPECT_EQ(markdown_text("<script>|\n*a*&lt;"), "\\<script\\>\\| \\*a\\*\\&lt;");
  EXPECT_EQ(markdown_text("\xc2\x9b"), "??");
}

}  // namespace
}  // namespace mfu
