// The table of injection/README.md has the rows of the one that the code reads, each with its level.
#include "cuda/coexistence.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace mfu {
namespace {

/// How the rows begin, in the order of OtherProfiler.
constexpr const char* kWho[] = {"Nsight Systems",      "MPS",
                                "a tool that holds",   "torch.profiler with",
                                "other subscribers",   "torch.profiler, about",
                                "any activity client", "the same, where",
                                "anybody, with"};
static_assert(std::size(kWho) == std::size(kCoexistence));

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
    std::vector<std::string> columns;
    std::istringstream line(shown[i + 2]);
    for (std::string column; std::getline(line, column, '|');) columns.push_back(column);
    ASSERT_EQ(columns.size(), 5u) << "nothing, who, how, level, answer: " << shown[i + 2];
    EXPECT_TRUE(columns[1].starts_with(std::string(" ") + kWho[i])) << shown[i + 2];
    EXPECT_EQ(columns[3], std::string(" ") + row.level + " ") << shown[i + 2];
    EXPECT_GT(columns[2].size(), 2u);
    EXPECT_GT(columns[4].size(), 2u);
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
