// The model of a config, and its count, in a test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/families/read_architecture.h"
#include "core/model/flops_model.h"

namespace mfu {

inline FlopsModel model_of(const std::string& config, FlopsOptions options = {}) {
  Result<Architecture> spec = read_model(config, "test: ");
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
  return FlopsModel::make(spec.ok() ? *spec : Architecture{}, std::move(options));
}

inline FlopCount count(const FlopsModel& model, Phase phase, std::vector<SequenceGroup> sequences,
                       std::int64_t passes = 1) {
  CountRequest request;
  request.phase = phase;
  request.sequences = sequences;
  request.passes = passes;
  Result<FlopCount> result = model.count_flop(request);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : FlopCount{};
}

}  // namespace mfu
