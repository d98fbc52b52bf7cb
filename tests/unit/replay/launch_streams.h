// Streams of launches made from recorded ones, and what a detector says of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/detect/step_detector.h"
#include "tests/unit/detect/made_launches.h"
#include "tools/replay/trace_launches.h"
#include "tools/trace/open_trace.h"

namespace mfu {

/// What a detector said of a stream.
class Heard final : public StepListener {
 public:
  explicit Heard(const Launches& stream) : Heard() {
    for (const Launch& launch : stream) add(launch);
    finish();
  }
  Heard() : detector_(*this) {}

  void add(const Launch& launch) { detector_.add(launch); }
  void finish() { detector_.finish(); }
  void on_boundary(const StepBoundary& boundary) override {
    ASSERT_TRUE(boundaries_.empty() || boundary.launch > boundaries_.back().launch);
    ASSERT_LT(boundary.launch, detector_.launches() + (boundary.last ? 1 : 0));
    boundaries_.push_back(boundary);
  }

  [[nodiscard]] const StepFindings& findings() const { return detector_.findings(); }
  [[nodiscard]] StepDetector& detector() { return detector_; }
  [[nodiscard]] std::vector<std::uint64_t> boundaries() const {
    std::vector<std::uint64_t> launches;
    for (const StepBoundary& boundary : boundaries_) launches.push_back(boundary.launch);
    return launches;
  }
  /// Those that are further than `tolerance` from every one of `truth`.
  [[nodiscard]] std::vector<std::uint64_t> outside(const std::vector<std::uint64_t>& truth,
                                                   std::uint64_t tolerance = 0) const {
    std::vector<std::uint64_t> wrong;
    for (const std::uint64_t b : boundaries())
      if (std::none_of(truth.begin(), truth.end(),
                       [&](std::uint64_t t) { return (t > b ? t - b : b - t) <= tolerance; }))
        wrong.push_back(b);
    return wrong;
  }
  /// Those of `truth` from `from` on that were not told.
  [[nodiscard]] std::vector<std::uint64_t> missed(const std::vector<std::uint64_t>& truth, std::uint64_t from = 0,
                                                  std::uint64_t tolerance = 0) const {
    std::vector<std::uint64_t> missing;
    const auto told = boundaries();
    for (const std::uint64_t t : truth)
      if (t >= from &&
          std::none_of(told.begin(), told.end(), [&](std::uint64_t b) { return (t > b ? t - b : b - t) <= tolerance; }))
        missing.push_back(t);
    return missing;
  }

 private:
  StepDetector detector_;
  std::vector<StepBoundary> boundaries_;
};

/// Recorded launches of the `index`-th process and device in a trace of tests/data/traces.
inline Launches recorded(const std::string& name, std::size_t index = 0) {
  const auto folder = std::filesystem::path(MFU_TEST_DATA) / "traces";
  const auto trace = open_trace((folder / name).string());
  if (!trace.ok()) {
    ADD_FAILURE() << trace.error().message;
    return {};
  }
  std::vector<DeviceLaunches> devices = trace_launches(trace.value());
  return index < devices.size() ? std::move(devices[index].launches) : Launches{};
}

inline Launches part(const Launches& from, std::size_t begin, std::size_t end) {
  return {from.begin() + static_cast<std::ptrdiff_t>(begin), from.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace mfu
