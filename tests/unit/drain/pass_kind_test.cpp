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
    EXPECT_EQ(kind_of_pass(seen(4, 4, 1), {by_names}), StepKind::kDecode);
}

TEST(PassKindTest, SeveralQueriesPrefill) {
  EXPECT_EQ(kind_of_pass(seen(512, 4, 128), {StepKind::kIteration}), StepKind::kPrefillOrMixed);
  EXPECT_EQ(kind_of_pass(seen(512, 4, 128), {StepKind::kDecode}), StepKind::kPrefillOrMixed);
  EXPECT_EQ(kind_of_pass(seen(8, 4, 2), {StepKind::kIteration}), StepKind::kPrefillOrMixed);
}

TEST(PassKindTest, DraftsOfKernelsThatDecodeAreTriedAtOnce) {
  EXPECT_EQ(kind_of_pass(seen(20, 4, 5), {StepKind::kDecode}), StepKind::kDecode);
}

TEST(PassKindTest, WithoutLengthsNamesDecide) {
  for (const StepKind by_names : {StepKind::kIteration, StepKind::kDecode, StepKind::kPrefillOrMixed}) {
    EXPECT_EQ(kind_of_pass({}, {by_names}), by_names);
    EXPECT_EQ(kind_of_pass(seen(516, std::nullopt, std::nullopt), {by_names}), by_names);
    EXPECT_EQ(kind_of_pass(seen(515, 4, std::nullopt), {by_names}), by_names);
  }
}

SeenShape multiplied(std::int64_t rows, std::int64_t logits) {
  SeenShape shape = seen(rows, std::nullopt, std::nullopt);
  shape.logits = logits;
  return shape;
}

TEST(PassKindTest, LogitsOfFewerPositionsThanTokensPrefill) {
  for (const StepKind by_names : {StepKind::kIteration, StepKind::kDecode, StepKind::kPrefillOrMixed}) {
    EXPECT_EQ(kind_of_pass(multiplied(2048, 1), {by_names}), StepKind::kPrefillOrMixed);
    EXPECT_EQ(kind_of_pass(multiplied(31, 16), {by_names}), StepKind::kPrefillOrMixed);
    EXPECT_EQ(kind_of_pass(multiplied(32, 16), {by_names, false, true}), StepKind::kPrefillOrMixed);
  }
}

TEST(PassKindTest, AGraphsBatchMayBeFilledUp) {
  for (const StepKind by_names : {StepKind::kDecode, StepKind::kPrefillOrMixed})
    EXPECT_EQ(kind_of_pass(multiplied(24, 17), {by_names, true, true}), by_names);
}

TEST(PassKindTest, LogitsOfAllTokensDecodeWhereLastPositionsAreAllThatIsComputed) {
  for (const StepKind by_names : {StepKind::kIteration, StepKind::kDecode, StepKind::kPrefillOrMixed}) {
    EXPECT_EQ(kind_of_pass(multiplied(16, 16), {by_names, true}), StepKind::kDecode);
    EXPECT_EQ(kind_of_pass(multiplied(512, 512), {by_names, false}), by_names);
  }
}

}  // namespace
}  // namespace mfu
