#include "cuda/activity_decode.h"

#include <sched.h>
#include <time.h>

#include <array>
#include <cstring>

#include "cuda/launch_ids.h"

namespace mfu {
namespace {

// Kernel3 to Kernel13 share these offsets; a newer version only appends (the headers of CUPTI 13.0 and 13.5 have the
// same, by notes of every version's layout). sizeof is never used to step: cuptiActivityGetNextRecord knows.
struct KernelOffsets {
  using Record = CUpti_ActivityKernel9;
  static constexpr std::size_t kStart = offsetof(Record, start), kEnd = offsetof(Record, end),
                               kDevice = offsetof(Record, deviceId), kContext = offsetof(Record, contextId),
                               kStream = offsetof(Record, streamId), kGridX = offsetof(Record, gridX),
                               kGridZ = offsetof(Record, gridZ), kCorrelation = offsetof(Record, correlationId),
                               kName = offsetof(Record, name), kGraphNode = offsetof(Record, graphNodeId),
                               kGraph = offsetof(Record, graphId);
};
/// Of copies and of sets.
struct MemcpyOffsets {
  using Record = CUpti_ActivityMemcpy5;
  static constexpr std::size_t kCopyKind = offsetof(Record, copyKind), kBytes = offsetof(Record, bytes),
                               kStart = offsetof(Record, start), kEnd = offsetof(Record, end),
                               kDevice = offsetof(Record, deviceId), kContext = offsetof(Record, contextId),
                               kStream = offsetof(Record, streamId), kCorrelation = offsetof(Record, correlationId),
                               kGraph = offsetof(Record, graphId);
};
/// Fields that are elsewhere than in MemcpyOffsets.
struct PeerCopyOffsets {
  using Record = CUpti_ActivityMemcpyPtoP4;
  static constexpr std::size_t kCorrelation = offsetof(Record, correlationId), kGraph = offsetof(Record, graphId);
};
struct CallOffsets {
  using Record = CUpti_ActivityAPI;
  static constexpr std::size_t kCbid = offsetof(Record, cbid), kStart = offsetof(Record, start),
                               kEnd = offsetof(Record, end), kThread = offsetof(Record, threadId),
                               kCorrelation = offsetof(Record, correlationId), kReturn = offsetof(Record, returnValue);
};
struct GraphTraceOffsets {
  using Record = CUpti_ActivityGraphTrace;
  static constexpr std::size_t kCorrelation = offsetof(Record, correlationId), kStart = offsetof(Record, start),
                               kEnd = offsetof(Record, end), kDevice = offsetof(Record, deviceId),
                               kGraph = offsetof(Record, graphId), kContext = offsetof(Record, contextId),
                               kStream = offsetof(Record, streamId);
};

static_assert(std::endian::native == std::endian::little);
static_assert(KernelOffsets::kGridX == 52 && KernelOffsets::kName == 104 && KernelOffsets::kGraph == 156);
static_assert(offsetof(CUpti_ActivityKernel9, gridY) == KernelOffsets::kGridX + 4);
static_assert(offsetof(CUpti_ActivityKernel5, start) == KernelOffsets::kStart);
static_assert(offsetof(CUpti_ActivityKernel5, gridX) == KernelOffsets::kGridX);
static_assert(offsetof(CUpti_ActivityKernel5, correlationId) == KernelOffsets::kCorrelation);
static_assert(offsetof(CUpti_ActivityKernel5, name) == KernelOffsets::kName);
static_assert(offsetof(CUpti_ActivityKernel5, graphNodeId) == KernelOffsets::kGraphNode);
static_assert(offsetof(CUpti_ActivityKernel5, graphId) == KernelOffsets::kGraph);
static_assert(offsetof(CUpti_ActivityMemcpy4, graphId) == MemcpyOffsets::kGraph);
static_assert(offsetof(CUpti_ActivityMemset4, bytes) == MemcpyOffsets::kBytes);
static_assert(offsetof(CUpti_ActivityMemset4, start) == MemcpyOffsets::kStart);
static_assert(offsetof(CUpti_ActivityMemset4, end) == MemcpyOffsets::kEnd);
static_assert(offsetof(CUpti_ActivityMemset4, deviceId) == MemcpyOffsets::kDevice);
static_assert(offsetof(CUpti_ActivityMemset4, contextId) == MemcpyOffsets::kContext);
static_assert(offsetof(CUpti_ActivityMemset4, streamId) == MemcpyOffsets::kStream);
static_assert(offsetof(CUpti_ActivityMemset4, correlationId) == MemcpyOffsets::kCorrelation);
static_assert(offsetof(CUpti_ActivityMemset4, graphId) == MemcpyOffsets::kGraph);
static_assert(offsetof(CUpti_ActivityMemset3, graphId) == MemcpyOffsets::kGraph);
static_assert(offsetof(CUpti_ActivityMemcpyPtoP4, start) == MemcpyOffsets::kStart);
static_assert(offsetof(CUpti_ActivityMemcpyPtoP3, graphId) == PeerCopyOffsets::kGraph);

/// Bytes of each record that are read: a record that ends before them is cut off.
constexpr std::size_t kKernelBytes = KernelOffsets::kGraph + 4;
constexpr std::size_t kCopyBytes = MemcpyOffsets::kGraph + 4;
constexpr std::size_t kPeerCopyBytes = PeerCopyOffsets::kGraph + 4;
constexpr std::size_t kCallBytes = CallOffsets::kReturn + 4;
constexpr std::size_t kGraphTraceBytes = GraphTraceOffsets::kStream + 4;

/// By CUpti_ActivityMemcpyKind, whose 11 values lie within 16. Peer copies are separate records.
constexpr std::array<CopyDirection, 16> kDirections = [] {
  std::array<CopyDirection, 16> by_kind{};
  by_kind[CUPTI_ACTIVITY_MEMCPY_KIND_HTOD] = by_kind[CUPTI_ACTIVITY_MEMCPY_KIND_HTOA] = CopyDirection::kToDevice;
  by_kind[CUPTI_ACTIVITY_MEMCPY_KIND_DTOH] = by_kind[CUPTI_ACTIVITY_MEMCPY_KIND_ATOH] = CopyDirection::kToHost;
  for (const auto kind :
       {CUPTI_ACTIVITY_MEMCPY_KIND_ATOA, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD, CUPTI_ACTIVITY_MEMCPY_KIND_DTOA,
        CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP})
    by_kind[kind] = CopyDirection::kWithin;
  return by_kind;
}();

template <typename T>
T read(const std::uint8_t* record, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

/// Of any kind of record that runs on the device; its correlation and graph are elsewhere in some.
template <typename Offsets>
void read_place(const std::uint8_t* record, ActivityRecord& out, std::uint32_t& context) noexcept {
  out.begin_ns = static_cast<TimeNs>(read<std::uint64_t>(record, Offsets::kStart));
  out.end_ns = static_cast<TimeNs>(read<std::uint64_t>(record, Offsets::kEnd));
  out.device = static_cast<DeviceId>(read<std::uint32_t>(record, Offsets::kDevice));
  out.stream = static_cast<StreamId>(read<std::uint32_t>(record, Offsets::kStream));
  context = read<std::uint32_t>(record, Offsets::kContext);
}

enum class Outcome : std::uint8_t { kRecord, kNothing, kCutOff, kUnknownKind };

/// A record that is no kernel. Not part of the loop over all: most are kernels, and need no jump by their kind.
[[gnu::noinline]] Outcome read_other(const std::uint8_t* record, std::uint32_t kind, std::size_t left,
                                     ActivityRecord& out, std::uint32_t& context) noexcept {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMSET:
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const bool set = kind == CUPTI_ACTIVITY_KIND_MEMSET;
      const bool peer = kind == CUPTI_ACTIVITY_KIND_MEMCPY2;
      if (left < (peer ? kPeerCopyBytes : kCopyBytes)) return Outcome::kCutOff;
      out = {};
      out.kind = set ? ActivityKind::kMemset : ActivityKind::kMemcpy;
      const auto copy_kind = read<std::uint8_t>(record, MemcpyOffsets::kCopyKind);
      out.direction = set                              ? CopyDirection::kUnknown
                      : peer                           ? CopyDirection::kWithin
                      : copy_kind < kDirections.size() ? kDirections[copy_kind]
                                                       : CopyDirection::kUnknown;
      out.extent = read<std::uint64_t>(record, MemcpyOffsets::kBytes);
      read_place<MemcpyOffsets>(record, out, context);
      out.correlation = static_cast<CorrelationId>(
          read<std::uint32_t>(record, peer ? PeerCopyOffsets::kCorrelation : MemcpyOffsets::kCorrelation));
      out.graph =
          static_cast<GraphId>(read<std::uint32_t>(record, peer ? PeerCopyOffsets::kGraph : MemcpyOffsets::kGraph));
      return Outcome::kRecord;
    }
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      if (left < kGraphTraceBytes) return Outcome::kCutOff;
      out = {};
      out.kind = ActivityKind::kGraph;
      read_place<GraphTraceOffsets>(record, out, context);
      out.correlation = static_cast<CorrelationId>(read<std::uint32_t>(record, GraphTraceOffsets::kCorrelation));
      out.graph = static_cast<GraphId>(read<std::uint32_t>(record, GraphTraceOffsets::kGraph));
      return Outcome::kRecord;
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME: {
      if (left < kCallBytes) return Outcome::kCutOff;
      const bool driver = kind == CUPTI_ACTIVITY_KIND_DRIVER;
      const auto id = read<std::uint32_t>(record, CallOffsets::kCbid);
      const CaptureEdge edge = capture_edge(driver, id);
      if ((edge == CaptureEdge::kNone && launch_kind(driver, id) == LaunchKind::kNone) ||
          read<std::uint32_t>(record, CallOffsets::kReturn) != 0)
        return Outcome::kNothing;
      out = {};
      out.kind = edge == CaptureEdge::kBegin ? ActivityKind::kCaptureBegins
                 : edge == CaptureEdge::kEnd ? ActivityKind::kCaptureEnds
                                             : ActivityKind::kCall;
      out.begin_ns = static_cast<TimeNs>(read<std::uint64_t>(record, CallOffsets::kStart));
      out.end_ns = static_cast<TimeNs>(read<std::uint64_t>(record, CallOffsets::kEnd));
      out.extent = read<std::uint32_t>(record, CallOffsets::kThread);
      out.correlation = static_cast<CorrelationId>(read<std::uint32_t>(record, CallOffsets::kCorrelation));
      return Outcome::kRecord;
    }
    default:
      return Outcome::kUnknownKind;
  }
}

/// Names seen in this buffer by address: CUPTI gives the same address for the same kernel while its module is loaded.
/// Two places per hash, the newer one first, since a program's few hundred kernels would push each other out of one.
class NameCache {
 public:
  KernelNameId intern(KernelNames& names, const char* name) noexcept {
    const std::size_t at = (reinterpret_cast<std::uintptr_t>(name) * 0x9E3779B97F4A7C15ull) >> (64 - kBits);
    std::array<Entry, 2>& both = entries_[at];
    if (name == nullptr) return names.intern(name);
    // Which of the two it is follows no pattern that a branch could learn; nearly always it is one.
    const bool newer = both[0].name == name;
    const KernelNameId known = newer ? both[0].id : both[1].id;
    if (newer | (both[1].name == name)) [[likely]]
      return known;
    both[1] = both[0];
    both[0] = {name, names.intern(name)};
    return both[0].id;
  }

 private:
  static constexpr unsigned kBits = 8;
  struct Entry {
    const char* name = nullptr;
    KernelNameId id{};
  };
  std::array<std::array<Entry, 2>, 1u << kBits> entries_{};
};

inline Outcome read_kernel(const std::uint8_t* record, std::size_t left, NameCache& cache, KernelNames& names,
                           const GraphProducts* nodes, ActivityRecord& out, std::uint32_t& context) noexcept {
  if (left < kKernelBytes) return Outcome::kCutOff;
  context = read<std::uint32_t>(record, KernelOffsets::kContext);
  out = {
      .begin_ns = static_cast<TimeNs>(read<std::uint64_t>(record, KernelOffsets::kStart)),
      .end_ns = static_cast<TimeNs>(read<std::uint64_t>(record, KernelOffsets::kEnd)),
      // pack() without its bounds: x and y stand side by side, and CUDA allows neither y nor z more than 16 bits.
      .extent = read<std::uint64_t>(record, KernelOffsets::kGridX) |
                std::uint64_t{read<std::uint32_t>(record, KernelOffsets::kGridZ)} << 48,
      .correlation = static_cast<CorrelationId>(read<std::uint32_t>(record, KernelOffsets::kCorrelation)),
      .device = static_cast<DeviceId>(read<std::uint32_t>(record, KernelOffsets::kDevice)),
      .stream = static_cast<StreamId>(read<std::uint32_t>(record, KernelOffsets::kStream)),
      .graph = static_cast<GraphId>(read<std::uint32_t>(record, KernelOffsets::kGraph)),
      .name = cache.intern(names, read<const char*>(record, KernelOffsets::kName)),
      .kind = ActivityKind::kKernel,
  };
  if (out.graph != GraphId::kNone && nodes != nullptr) {
    const ProductTag product = nodes->find(read<std::uint64_t>(record, KernelOffsets::kGraphNode));
    out.product = product.product();
    out.first_of_product = product.first();
  }
  return Outcome::kRecord;
}

}  // namespace

RecordBatch* ActivityDecoder::take_batch(bool may_wait) noexcept {
  RecordBatch* batch = queue_.take();
  for (int tries = 0; batch == nullptr && may_wait && tries < 200; ++tries) {
    const timespec millisecond{0, 1'000'000};
    ::nanosleep(&millisecond, nullptr);
    batch = queue_.take();
  }
  return batch;
}

void ActivityDecoder::decode(std::uint8_t* buffer, std::size_t valid_bytes, bool may_wait) noexcept {
  NameCache cache;
  RecordBatch* batch = nullptr;
  ActivityRecord nowhere;  // takes the records while there is no batch
  CUpti_Activity* next = nullptr;
  std::size_t before = 0, stride = 0;
  std::uint32_t last_context = 0, last_device = ~0u;
  while (valid_bytes != 0) {
    const CUptiResult result = subscriber_ == nullptr
                                   ? api_.get_next_record(buffer, valid_bytes, &next)
                                   : api_.get_next_record_v2(subscriber_, buffer, valid_bytes, &next);
    if (result != CUPTI_SUCCESS) {
      if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) counters_.add(Counter::kRecordsTruncated);
      break;
    }
    const auto* record = reinterpret_cast<const std::uint8_t*>(next);
    // Outside of the buffer on either side: an address before it is far behind it, without a sign.
    const std::size_t at = reinterpret_cast<std::uintptr_t>(record) - reinterpret_cast<std::uintptr_t>(buffer);
    if (at >= valid_bytes || valid_bytes - at < sizeof(std::uint32_t)) {
      counters_.add(Counter::kRecordsTruncated);
      break;
    }
    const std::size_t left = valid_bytes - at;
    // Records are read once, from memory that another thread or the device has written: ask for the next ones ahead.
    // As far as the last one was long; a hint that is never dereferenced may point anywhere.
    if (at > before) stride = at - before;
    before = at;
    for (std::size_t line = 0; line < kKernelBytes; line += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(record) + 4 * stride + line));
    if (batch == nullptr) batch = take_batch(may_wait);
    // Straight into the batch; bytes that are no record are overwritten by the next.
    ActivityRecord& out = batch != nullptr ? batch->records[batch->count] : nowhere;
    std::uint32_t context = 0;
    Outcome outcome = Outcome::kRecord;
    const auto kind = read<std::uint32_t>(record, 0);
    if (kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && kind != CUPTI_ACTIVITY_KIND_KERNEL) [[unlikely]] {
      outcome = read_other(record, kind, left, out, context);
    } else {
      outcome = read_kernel(record, left, cache, names_, nodes_, out, context);
    }
    if (outcome != Outcome::kRecord) [[unlikely]] {
      if (outcome == Outcome::kNothing) continue;
      counters_.add(outcome == Outcome::kCutOff ? Counter::kRecordsTruncated : Counter::kRecordsUnknownKind);
      if (outcome == Outcome::kCutOff) break;
      continue;
    }
    constexpr std::uint32_t kMostDevices = 256;
    if (raw(out.device) >= kMostDevices) {  // no such machine: the record is not what it seems
      counters_.add(Counter::kRecordsUnknownKind);
      continue;
    }
    if (!is_host_call(out.kind) && (context != last_context || raw(out.device) != last_device)) {
      last_context = context;
      last_device = raw(out.device);
      contexts_.set(context, last_device);
    }
    if (batch == nullptr) {
      counters_.add(Counter::kRecordsNoBatch);
      continue;
    }
    if (++batch->count == RecordBatch::kRecords) {
      queue_.send(batch);
      batch = nullptr;
    }
  }
  if (batch != nullptr) {
    if (batch->count != 0)
      queue_.send(batch);
    else
      queue_.give_back(batch);
  }
}

}  // namespace mfu
