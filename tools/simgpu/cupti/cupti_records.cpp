#include "tools/simgpu/cupti/cupti_records.h"

#include <unistd.h>

#include <charconv>
#include <cstring>

namespace mfu::sim {
namespace {

/// One version of CUPTI, by the CUDA release that brought it. cupti_version.h lists them.
struct NamedLayout {
  std::string_view name;
  Layout layout;
};
// The callback ids of 13.0 and 13.5 are as in their headers; the others are those of the newest function that the
// version brought, so a little low at most.
constexpr NamedLayout kLayouts[] = {
    // version, kernel, memcpy, memset, graph trace [B]; largest kind, driver and runtime callback id
    {"11.1", {14, 160, 80, 80, 48, 50, 676, 440}},     {"11.2", {15, 168, 80, 80, 48, 50, 676, 440}},
    {"11.6", {17, 176, 88, 88, 48, 50, 676, 440}},     {"11.8", {18, 200, 88, 88, 48, 51, 676, 440}},
    {"12.0", {19, 208, 88, 88, 48, 51, 719, 460}},     {"12.2", {20, 208, 88, 88, 48, 51, 719, 460}},
    {"12.3", {21, 208, 88, 88, 56, 53, 719, 460}},     {"12.4", {22, 208, 88, 88, 56, 53, 755, 460}},
    {"12.5", {23, 208, 88, 88, 56, 53, 755, 460}},     {"12.6", {24, 208, 88, 88, 56, 53, 761, 490}},
    {"12.8", {26, 208, 96, 88, 56, 54, 761, 490}},     {"12.9", {27, 208, 96, 88, 56, 54, 795, 490}},
    {"12.9.1", {28, 208, 96, 88, 56, 54, 795, 490}},   {"13.0.0", {130000, 216, 96, 88, 56, 54, 806, 522}},
    {"13.0", {130001, 216, 96, 88, 56, 54, 806, 522}}, {"13.1", {130100, 224, 96, 88, 56, 54, 806, 522}},
    {"13.2", {130200, 232, 96, 88, 56, 54, 806, 522}}, {"13.3", {130300, 232, 96, 88, 56, 58, 860, 522}},
    {"13.4", {130400, 248, 96, 88, 56, 58, 860, 522}}, {"13.5", {130500, 248, 96, 88, 56, 58, 876, 566}},
};

template <typename T, typename V>
void put(std::uint8_t* out, std::size_t offset, V value) noexcept {
  const T typed = static_cast<T>(value);
  std::memcpy(out + offset, &typed, sizeof typed);
}

void write_kernel(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint16_t>(out, 6, 64);  // registersPerThread
  put<std::uint64_t>(out, 16, r.begin_ns);
  put<std::uint64_t>(out, 24, r.end_ns);
  put<std::uint64_t>(out, 32, 0);  // completed: CUPTI_TIMESTAMP_UNKNOWN
  put<std::uint32_t>(out, 40, a.device);
  put<std::uint32_t>(out, 44, a.context);
  put<std::uint32_t>(out, 48, a.stream);
  for (std::size_t i = 0; i < 3; ++i) {
    put<std::int32_t>(out, 52 + 4 * i, a.grid[i]);
    put<std::int32_t>(out, 64 + 4 * i, a.block[i]);
  }
  put<std::int32_t>(out, 80, a.shared_bytes);
  put<std::uint32_t>(out, 92, a.correlation);
  put<std::int64_t>(out, 96, 0);  // gridId
  put<const char*>(out, 104, r.name);
  if (layout.kernel < 144) return;
  put<std::uint8_t>(out, 136, a.launch_type);
  put<std::uint32_t>(out, 140, a.shared_bytes);
  if (layout.kernel < 160) return;
  put<std::uint64_t>(out, 144, a.graph_node_id);
  put<std::uint32_t>(out, 156, a.graph_id);
  if (layout.kernel >= 176) {
    put<std::uint32_t>(out, 168, 8);  // channelID
    put<std::uint32_t>(out, 172, 1);  // channelType: compute
  }
}

void write_memcpy(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint8_t>(out, 4, a.copy_kind);
  put<std::uint8_t>(out, 5, a.src_kind);
  put<std::uint8_t>(out, 6, a.dst_kind);
  put<std::uint8_t>(out, 7, 1);  // asynchronous
  put<std::uint64_t>(out, 8, a.bytes);
  put<std::uint64_t>(out, 16, r.begin_ns);
  put<std::uint64_t>(out, 24, r.end_ns);
  put<std::uint32_t>(out, 32, a.device);
  put<std::uint32_t>(out, 36, a.context);
  put<std::uint32_t>(out, 40, a.stream);
  put<std::uint32_t>(out, 44, a.correlation);
  if (layout.memcpy < 80) return;
  put<std::uint64_t>(out, 64, a.graph_node_id);
  put<std::uint32_t>(out, 72, a.graph_id);
  if (layout.memcpy >= 96) put<std::uint64_t>(out, 88, 1);  // copyCount
}

void write_memset(const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint32_t>(out, 4, a.value);
  put<std::uint64_t>(out, 8, a.bytes);
  put<std::uint64_t>(out, 16, r.begin_ns);
  put<std::uint64_t>(out, 24, r.end_ns);
  put<std::uint32_t>(out, 32, a.device);
  put<std::uint32_t>(out, 36, a.context);
  put<std::uint32_t>(out, 40, a.stream);
  put<std::uint32_t>(out, 44, a.correlation);
  put<std::uint16_t>(out, 50, 3);  // memoryKind: device
  put<std::uint64_t>(out, 64, a.graph_node_id);
  put<std::uint32_t>(out, 72, a.graph_id);
}

void write_graph(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint32_t>(out, 4, a.correlation);
  put<std::uint64_t>(out, 8, r.begin_ns);
  put<std::uint64_t>(out, 16, r.end_ns);
  put<std::uint32_t>(out, 24, a.device);
  put<std::uint32_t>(out, 28, a.graph_id);
  put<std::uint32_t>(out, 32, a.context);
  put<std::uint32_t>(out, 36, a.stream);
  if (layout.graph_trace < 56) return;
  put<std::uint32_t>(out, 48, a.device);   // endDeviceId
  put<std::uint32_t>(out, 52, a.context);  // endContextId
}

void write_api(const RecordView& r, std::uint8_t* out) noexcept {
  put<std::uint32_t>(out, 4, r.api->cbid);
  put<std::uint64_t>(out, 8, r.begin_ns);
  put<std::uint64_t>(out, 16, r.end_ns);
  put<std::uint32_t>(out, 24, getpid());
  put<std::uint32_t>(out, 28, r.thread);
  put<std::uint32_t>(out, 32, r.api->correlation);
  put<std::uint32_t>(out, 36, r.api->result);
}

}  // namespace

std::uint32_t cupti_version_number(std::string_view text) noexcept {
  for (const NamedLayout& known : kLayouts) {
    if (known.name == text) return known.layout.version;
  }
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

Layout layout_of(std::uint32_t version) noexcept {
  Layout newest = kLayouts[0].layout;
  for (const NamedLayout& known : kLayouts) {
    if (known.layout.version <= version) newest = known.layout;
  }
  newest.version = version;
  return newest;
}

std::size_t record_bytes(const Layout& layout, std::uint32_t kind) noexcept {
  switch (kind) {
    case kKindConcurrentKernel:
    case kKindKernel:
      return layout.kernel;
    case kKindMemcpy:
      return layout.memcpy;
    case kKindMemset:
      return layout.memset;
    case kKindGraphTrace:
      return layout.graph_trace;
    case kKindDriver:
    case kKindRuntime:
      return 40;
    case kKindExternalCorrelation:
      return 24;
    case kKindUnknown:
      return 48;
    default:
      return 0;
  }
}

void write_record(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  std::memset(out, 0, record_bytes(layout, r.kind));
  put<std::uint32_t>(out, 0, r.kind);
  switch (r.kind) {
    case kKindConcurrentKernel:
    case kKindKernel:
      write_kernel(layout, r, out);
      break;
    case kKindMemcpy:
      write_memcpy(layout, r, out);
      break;
    case kKindMemset:
      write_memset(r, out);
      break;
    case kKindGraphTrace:
      write_graph(layout, r, out);
      break;
    case kKindDriver:
    case kKindRuntime:
      write_api(r, out);
      break;
    case kKindExternalCorrelation:
      put<std::uint32_t>(out, 4, r.external_kind);
      put<std::uint64_t>(out, 8, r.external_id);
      put<std::uint32_t>(out, 16, r.external_correlation);
      break;
    default:
      std::memset(out + 4, 0xA5, record_bytes(layout, r.kind) - 4);
      break;
  }
}

}  // namespace mfu::sim
