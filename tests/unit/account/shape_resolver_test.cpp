#include "core/account/shape_resolver.h"

#include <gtest/gtest.h>

namespace mfu {
namespace {

Shape shape(std::optional<std::int64_t> batch, std::optional<std::int64_t> seq_len = {},
            std::optional<std::int64_t> context = {}, std::optional<std::int64_t> new_tokens = {},
            std::optional<std::int64_t> tokens = {}) {
  Shape s;
  s.batch = batch, s.seq_len = seq_len, s.context = context, s.new_tokens = new_tokens, s.tokens = tokens;
  return s;
}

TEST(ShapeResolver, TheRangeComesBeforeTheRuleBeforeTheWorkload) {
  Workload workload;
  workload.phase = Phase::kTrain;
  workload.shape = shape(1, 10, {}, {}, {});
  ShapeResolver r(workload);
  const Shape s = r.resolve(Phase::kTrain, {shape(3), shape(2, 20), {}}, 0).shape;
  EXPECT_EQ(s.batch, 3);
  EXPECT_EQ(s.seq_len, 20);
  EXPECT_EQ(r.resolve(Phase::kTrain, {{}, {}, {}}, 0).shape.seq_len, 10);
}

TEST(ShapeResolver, AWorkloadOfOnePhaseSaysNothingAboutAnother) {
  Workload workload;
  workload.phase = Phase::kTrain;
  workload.shape = shape(8, 4096);
  ShapeResolver train(workload);
  EXPECT_FALSE(train.resolve(Phase::kPrefill, {{}, {}, {}}, 0).shape.batch);
  workload.phase = Phase::kPrefill;
  ShapeResolver serve(workload);
  EXPECT_EQ(serve.resolve(Phase::kDecode, {{}, {}, {}}, 0).shape.batch, 8);
  EXPECT_FALSE(serve.resolve(Phase::kTrain, {{}, {}, {}}, 0).shape.batch);
  workload.phase.reset();
  ShapeResolver any(workload);
  EXPECT_EQ(any.resolve(Phase::kPrefill, {{}, {}, {}}, 0).shape.seq_len, 4096);
  EXPECT_FALSE(any.resolve(Phase::kDecode, {{}, {}, {}}, 0).shape.seq_len);  // a prompt's length is not a decode's
}

TEST(ShapeResolver, ATotalOfItsOwnIsNotContradictedByTheUsualLength) {
  Workload workload;
  workload.shape = shape(4, 2048, {}, 16, 9999);
  ShapeResolver r(workload);
  const Shape prefill = r.resolve(Phase::kPrefill, {shape(2, {}, {}, {}, 100), {}, {}}, 0).shape;
  EXPECT_EQ(prefill.tokens, 100);
  EXPECT_FALSE(prefill.seq_len);
  const Shape decode = r.resolve(Phase::kDecode, {shape(2, {}, {}, {}, 6), {}, {}}, 0).shape;
  EXPECT_EQ(decode.tokens, 6);
  EXPECT_FALSE(decode.new_tokens);
}

TEST(ShapeResolver, DecodeGoesOnWhereThePrefillLeftOff) {
  ShapeResolver r({});
  EXPECT_FALSE(r.resolve(Phase::kDecode, {shape(4), {}, {}}, 0).shape.context);  // no prefill yet: nobody knows
  (void)r.resolve(Phase::kPrefill, {shape(4, 100), {}, {}}, 0).shape;
  EXPECT_EQ(r.resolve(Phase::kDecode, {shape(4), {}, {}}, 0).shape.context, 100);
  EXPECT_EQ(r.resolve(Phase::kDecode, {shape(4), {}, {}}, 0).shape.context, 101);
  EXPECT_EQ(r.resolve(Phase::kDecode, {shape(4, {}, {}, 10), {}, {}}, 0).shape.context, 102);
  EXPECT_EQ(r.resolve(Phase::kDecode, {shape(4, {}, {}, {}, 8), {}, {}}, 0).shape.context,
            112);                                                                           // 8 tokens of 4: two passes
  EXPECT_EQ(r.resolve(Phase::kDecode, {shape(4, {}, 500), {}, {}}, 0).shape.context, 500);  // said in the range
  EXPECT_EQ(r.resolve(Phase::kDecode, {shape(4), {}, {}}, 0).shape.context, 501);
}

TEST(ShapeResolver, DevicesAndPrefillsInSteps) {
  ShapeResolver r({});
  (void)r.resolve(Phase::kPrefill, {shape(1, 100), {}, {}}, 0).shape;
  (void)r.resolve(Phase::kPrefill, {shape(2, {}, {}, {}, 600), {}, {}}, 1).shape;  // 300 each
  EXPECT_EQ(r.cached(0), 100);
  EXPECT_EQ(r.cached(1), 300);
  EXPECT_FALSE(r.cached(2));
  (void)r.resolve(Phase::kPrefill, {shape(1, 50, 100), {}, {}}, 0).shape;  // the second chunk of a prompt
  EXPECT_EQ(r.cached(0), 150);
  r.set_cached(0, std::nullopt);
  EXPECT_FALSE(r.resolve(Phase::kDecode, {shape(1), {}, {}}, 0).shape.context);
}

TEST(ShapeResolver, TrainingLeavesTheCacheAlone) {
  ShapeResolver r({});
  (void)r.resolve(Phase::kTrain, {shape(8, 4096), {}, {}}, 0).shape;
  EXPECT_FALSE(r.cached(0));
}

}  // namespace
}  // namespace mfu
