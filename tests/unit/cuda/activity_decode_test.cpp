// Records of CUPTI's header structures become the KernelRecords that they stand for.
#include "cuda/activity_decode.h"

#include <cupti.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/launch_ids.h"

namespace mfu {
namespace {

/// As cuptiActivityGetNextRecord: every record of these tests takes as much room as the largest.
constexpr std::size_t kStride = 256;
CUptiResult next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::uint8_t* at = *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + kStride;
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}

class ActivityDecode : public testing::Test {
 protected:
  ActivityDecode() { api_.get_next_record = next_record; }

  template <typename Record>
  void add(Record record) {
    static_assert(sizeof record <= kStride);
    buffer_.resize(buffer_.size() + kStride, 0xA5);
    std::memcpy(buffer_.data() + buffer_.size() - kStride, &record, sizeof record);
  }
  CUpti_ActivityKernel9 kernel(std::int32_t x, std::int32_t y, std::int32_t z) {
    CUpti_ActivityKernel9 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.start = 1000;
    record.end = 2000;
    record.gridX = x;
    record.gridY = y;
    record.gridZ = z;
    record.blockX = 77;
    record.name = "k";
    return record;
  }
  void add_copy(std::uint8_t kind) {
    CUpti_ActivityMemcpy5 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    record.copyKind = kind;
    record.bytes = 4096;
    record.start = 1000;
    record.end = 2000;
    add(record);
  }

  std::vector<ActivityRecord> decoded() {
    ActivityDecoder decoder(api_, names_, contexts_, queue_, counters_);
    decoder.decode(buffer_.data(), buffer_.size(), false);
    std::vector<ActivityRecord> out;
    while (RecordBatch* batch = queue_.receive()) {
      out.insert(out.end(), batch->records.begin(), batch->records.begin() + batch->count);
      queue_.give_back(batch);
    }
    return out;
  }

  Counters counters_;
  KernelNames names_{counters_};
  ContextDevices contexts_;
  RecordQueue queue_;
  CuptiApi api_;
  std::vector<std::uint8_t> buffer_;
};

TEST_F(ActivityDecode, KernelsHaveTheirGrid) {
  const Grid grids[] = {{1, 1, 1}, {4096, 1, 1}, {7, 65'535, 3}, {2'147'483'647, 65'535, 65'535}, {5, 6, 7}};
  for (const Grid& g : grids)
    add(kernel(static_cast<std::int32_t>(g.x), static_cast<std::int32_t>(g.y), static_cast<std::int32_t>(g.z)));
  CUpti_ActivityKernel9 node = kernel(12, 34, 56);
  node.graphId = 9;
  add(node);
  const auto records = decoded();
  ASSERT_EQ(records.size(), std::size(grids) + 1);
  for (std::size_t i = 0; i < std::size(grids); ++i) {
    EXPECT_EQ(records[i].grid(), grids[i]) << i;
    EXPECT_EQ(records[i].direction, CopyDirection::kUnknown);
  }
  EXPECT_EQ(records.back().grid(), (Grid{12, 34, 56}));
  EXPECT_EQ(records.back().graph, GraphId{9});
}

/// The kinds by their numbers, not by the header's names: what the library meets is the number.
TEST_F(ActivityDecode, CopiesHaveTheirDirection) {
  using enum CopyDirection;
  const CopyDirection by_kind[] = {kUnknown, kToDevice, kToHost, kToDevice, kToHost, kWithin,
                                   kWithin,  kWithin,   kWithin, kWithin,   kWithin};
  for (std::uint8_t kind = 0; kind < std::size(by_kind); ++kind) add_copy(kind);
  for (const std::uint8_t kind : {11, 15, 16, 255}) add_copy(kind);
  const auto records = decoded();
  ASSERT_EQ(records.size(), std::size(by_kind) + 4);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].kind, ActivityKind::kMemcpy);
    EXPECT_EQ(records[i].direction, i < std::size(by_kind) ? by_kind[i] : kUnknown) << i;
    EXPECT_EQ(records[i].extent, 4096u);
    EXPECT_EQ(records[i].grid(), Grid{});
  }
}

TEST_F(ActivityDecode, PeerCopiesStayWithinAndSetsHaveNoDirection) {
  CUpti_ActivityMemcpyPtoP4 peer{};
  peer.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  peer.bytes = 100;
  peer.correlationId = 42;
  add(peer);
  CUpti_ActivityMemset4 set{};
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.value = 1;  // where a copy has its kind
  set.bytes = 200;
  add(set);
  const auto records = decoded();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].kind, ActivityKind::kMemcpy);
  EXPECT_EQ(records[0].direction, CopyDirection::kWithin);
  EXPECT_EQ(records[0].extent, 100u);
  EXPECT_EQ(records[0].correlation, CorrelationId{42});
  EXPECT_EQ(records[1].kind, ActivityKind::kMemset);
  EXPECT_EQ(records[1].direction, CopyDirection::kUnknown);
  EXPECT_EQ(records[1].extent, 200u);
}

TEST_F(ActivityDecode, CopiesAndSetsInAGraphSayWhich) {
  CUpti_ActivityMemcpy5 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.graphId = 7;
  add(copy);
  CUpti_ActivityMemset4 set{};
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.graphId = 8;
  add(set);
  CUpti_ActivityMemcpyPtoP4 peer{};
  peer.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  peer.graphId = 9;
  add(peer);
  add_copy(1);
  const auto records = decoded();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].graph, GraphId{7});
  EXPECT_EQ(records[1].graph, GraphId{8});
  EXPECT_EQ(records[2].graph, GraphId{9});
  EXPECT_EQ(records[3].graph, GraphId::kNone);
}

TEST_F(ActivityDecode, CallsKeepTheirThread) {
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  call.cbid = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
  call.start = 10;
  call.end = 20;
  call.threadId = 4711;
  call.correlationId = 3;
  add(call);
  const auto records = decoded();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].kind, ActivityKind::kCall);
  EXPECT_EQ(records[0].extent, 4711u);
  EXPECT_EQ(records[0].grid(), Grid{});
}

}  // namespace
}  // namespace mfu
