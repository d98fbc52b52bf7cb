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

/// Numbers of the same size, one behind the other from `offset` on.
template <typename T, typename... V>
void put(std::uint8_t* out, std::size_t offset, V... values) noexcept {
  const T typed[] = {static_cast<T>(values)...};
  std::memcpy(out + offset, typed, sizeof typed);
}

void write_kernel(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint16_t>(out, 6, 64);                        // registersPerThread
  put<std::uint64_t>(out, 16, r.begin_ns, r.end_ns, 0);  // `completed`: CUPTI_TIMESTAMP_UNKNOWN
  put<std::uint32_t>(out, 40, a.device, a.context, a.stream);
  put<std::int32_t>(out, 52, a.grid[0], a.grid[1], a.grid[2], a.block[0], a.block[1], a.block[2]);
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
  if (layout.kernel >= 176) put<std::uint32_t>(out, 168, 8, 1);  // channelID, channelType: compute
}

void write_memcpy(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint8_t>(out, 4, a.copy_kind, a.src_kind, a.dst_kind, 1);  // the last: asynchronous
  put<std::uint64_t>(out, 8, a.bytes, r.begin_ns, r.end_ns);
  put<std::uint32_t>(out, 32, a.device, a.context, a.stream, a.correlation);
  if (layout.memcpy < 80) return;
  put<std::uint64_t>(out, 64, a.graph_node_id);
  put<std::uint32_t>(out, 72, a.graph_id);
  if (layout.memcpy >= 96) put<std::uint64_t>(out, 88, 1);  // copyCount
}

void write_memset(const Layout&, const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint32_t>(out, 4, a.value);
  put<std::uint64_t>(out, 8, a.bytes, r.begin_ns, r.end_ns);
  put<std::uint32_t>(out, 32, a.device, a.context, a.stream, a.correlation);
  put<std::uint16_t>(out, 50, 3);  // memoryKind: device
  put<std::uint64_t>(out, 64, a.graph_node_id);
  put<std::uint32_t>(out, 72, a.graph_id);
}

void write_graph(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  const Activity& a = *r.activity;
  put<std::uint32_t>(out, 4, a.correlation);
  put<std::uint64_t>(out, 8, r.begin_ns, r.end_ns);
  put<std::uint32_t>(out, 24, a.device, a.graph_id, a.context, a.stream);
  if (layout.graph_trace >= 56) put<std::uint32_t>(out, 48, a.device, a.context);  // endDeviceId, endContextId
}

void write_api(const Layout&, const RecordView& r, std::uint8_t* out) noexcept {
  put<std::uint32_t>(out, 4, r.api->cbid);
  put<std::uint64_t>(out, 8, r.begin_ns, r.end_ns);
  put<std::uint32_t>(out, 24, getpid(), r.thread, r.api->correlation, r.api->result);
}

void write_external(const Layout&, const RecordView& r, std::uint8_t* out) noexcept {
  put<std::uint32_t>(out, 4, r.external_kind);
  put<std::uint64_t>(out, 8, r.external_id);
  put<std::uint32_t>(out, 16, r.external_correlation);
}

void write_unknown(const Layout&, const RecordView&, std::uint8_t* out) noexcept { std::memset(out + 4, 0xA5, 44); }

/// The records of a kind: as many bytes as the layout says, or always as many.
struct Form {
  std::uint32_t kind, bytes;
  std::uint32_t Layout::*of_layout;
  void (*write)(const Layout&, const RecordView&, std::uint8_t*) noexcept;
};
constexpr Form kForms[] = {{kKindConcurrentKernel, 0, &Layout::kernel, write_kernel},
                           {kKindKernel, 0, &Layout::kernel, write_kernel},
                           {kKindMemcpy, 0, &Layout::memcpy, write_memcpy},
                           {kKindMemset, 0, &Layout::memset, write_memset},
                           {kKindGraphTrace, 0, &Layout::graph_trace, write_graph},
                           {kKindDriver, 40, nullptr, write_api},
                           {kKindRuntime, 40, nullptr, write_api},
                           {kKindExternalCorrelation, 24, nullptr, write_external},
                           {kKindUnknown, 48, nullptr, write_unknown}};

}  // namespace

std::uint32_t cupti_version_number(std::string_view text) noexcept {
  for (const NamedLayout& known : kLayouts)
    if (known.name == text) return known.layout.version;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

Layout layout_of(std::uint32_t version) noexcept {
  Layout newest = kLayouts[0].layout;
  for (const NamedLayout& known : kLayouts)
    if (known.layout.version <= version) newest = known.layout;
  newest.version = version;
  return newest;
}

std::size_t record_bytes(const Layout& layout, std::uint32_t kind) noexcept {
  for (const Form& form : kForms)
    if (form.kind == kind) return form.of_layout != nullptr ? layout.*form.of_layout : form.bytes;
  return 0;
}

void write_record(const Layout& layout, const RecordView& r, std::uint8_t* out) noexcept {
  std::memset(out, 0, record_bytes(layout, r.kind));
  put<std::uint32_t>(out, 0, r.kind);
  for (const Form& form : kForms)
    if (form.kind == r.kind) form.write(layout, r, out);
}

}  // namespace mfu::sim
