// The byte layouts of the activity records that each CUPTI version writes. Written as offsets, not as header
// structures: one build imitates versions whose structures differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tools/simgpu/interface.h"

namespace mfu::sim {

/// The result of cuptiGetVersion() of CUDA `major.minor`; also takes such a number as it is. 0 if unknown.
[[nodiscard]] std::uint32_t cupti_version_number(std::string_view text) noexcept;

/// CUpti_ActivityKind values that are used here.
enum Kind : std::uint32_t {
  kKindMemcpy = 1,
  kKindMemset = 2,
  kKindKernel = 3,
  kKindDriver = 4,
  kKindRuntime = 5,
  kKindConcurrentKernel = 10,
  kKindExternalCorrelation = 39,
  kKindGraphTrace = 51,
  kKindUnknown = 977,  ///< the last: scripted, known to no client
};

/// Sizes of the records of one CUPTI version [B]. Sources: sizeof in the CUPTI 11.8-13.5 headers' newest structures.
struct Layout {
  std::uint32_t version;
  std::uint32_t kernel, memcpy, memset, graph_trace;
  std::uint32_t max_kind, max_driver_cbid, max_runtime_cbid;
};
/// Of the newest listed version that is not newer than `version`.
[[nodiscard]] Layout layout_of(std::uint32_t version) noexcept;

/// Size of a record by its kind; 0 if the version knows no such record.
[[nodiscard]] std::size_t record_bytes(const Layout& layout, std::uint32_t kind) noexcept;

/// Fields that the fault script or the delivery may change before a record is written.
struct RecordView {
  std::uint32_t kind;
  const Activity* activity = nullptr;  ///< kernels, copies, sets, graphs
  const ApiRecord* api = nullptr;      ///< driver and runtime API records
  std::uint32_t thread = 0;            ///< API records
  std::uint32_t external_kind = 0;     ///< external correlation records, with correlation in `external_correlation`
  std::uint64_t external_id = 0;
  std::uint32_t external_correlation = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  const char* name = nullptr;
};

/// Writes one record at `out`, which has record_bytes() room. Every byte of it is set.
void write_record(const Layout& layout, const RecordView& record, std::uint8_t* out) noexcept;

}  // namespace mfu::sim
