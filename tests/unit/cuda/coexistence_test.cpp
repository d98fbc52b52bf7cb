// The table of injection/README.md has the rows of the one that the code reads, each with its level.
#include "cuda/coexistence.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace mfu {
namespace {

TEST(Coexistence, TheDocumentShowsEveryRowInOrderAndNoOther) {
  std::ifstream file(MFU_TEST_DATA "/../../injection/README.md");
  std::vector<std::string> shown;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    inside = line.starts_with("| who | how it is seen | level |") || (inside && line.starts_with("|"));
    if (inside) shown.push_back(line);
  }
  ASSERT_EQ(shown.size(), 2 + std::size(kCoexistence)) << "a head, a line, and a row each";
  for (std::size_t i = 0; i < std::size(kCoexistence); ++i) {
    const Coexistence& row = kCoexistence[i];
    EXPECT_NE(shown[i + 2].find(std::string(" | ") + row.level + " | "), std::string::npos) << shown[i + 2];
  }
}

TEST(Coexistence, OnlyWhoTakesRecordsIsWaitedFor) {
  for (const Coexistence& row : kCoexistence) {
    if (row.gone_after != 0) {
      EXPECT_TRUE(row.takes_records) << row.level;
    }
  }
  EXPECT_GT(coexistence_with(OtherProfiler::kTakerWithEnd).gone_after,
            coexistence_with(OtherProfiler::kTaker).gone_after);
}

}  // namespace
}  // namespace mfu
