// Decode and prefill by what an iteration multiplied.
#include "core/drain/detected_regions.h"

#include <gtest/gtest.h>

namespace mfu {
namespace {

SeenShape seen(std::int64_t rows, std::optional<std::int64_t> sequences, std::optional<std::int64_t> queries) {
  SeenShape shape;
  shape.rows = rows;
  shape.sequences = sequences;
  shape.queries = queries;
  shape.passes = 1;
  return shape;
}

TEST(PassKindTest, OneQueryOfEachSequenceDecodes) {
  for (const StepKind by_names : {StepKind::kIteration, StepKind::kDecode, StepKind::kPrefillOrMixed})
    EXPECT_EQ(kind_of_pass(seen(4, 4, 1), by_names), StepKind::kDecode);
}

TEST(PassKindTest, SeveralQueriesPrefill) {
  EXPECT_EQ(kind_of_pass(seen(512, 4, 128), StepKind::kIteration), StepKind::kPrefillOrMixed);
  EXPECT_EQ(kind_of_pass(seen(512, 4, 128), StepKind::kDecode), StepKind::kPrefillOrMixed);
  EXPECT_EQ(kind_of_pass(seen(8, 4, 2), StepKind::kIteration), StepKind::kPrefillOrMixed);
}

TEST(PassKindTest, DraftsOfKernelsThatDecodeAreTriedAtOnce) {
  EXPECT_EQ(kind_of_pass(seen(20, 4, 5), StepKind::kDecode), StepKind::kDecode);
}

TEST(PassKindTest, WithoutLengthsNamesDecide) {
  for (const StepKind by_names : {StepKind::kIteration, StepKind::kDecode, StepKind::kPrefillOrMixed}) {
    EXPECT_EQ(kind_of_pass({}, by_names), by_names);
    EXPECT_EQ(kind_of_pass(seen(516, std::nullopt, std::nullopt), by_names), by_names);
    EXPECT_EQ(kind_of_pass(seen(515, 4, std::nullopt), by_names), by_names);
  }
}

}  // namespace
}  // namespace mfu
