// A stored trace of any tool: processes, host threads, ranges, launches, device activities.
// The readers (kineto, nsys) fill it, trace_figures and the replay read it. Plain data, one owner, no locks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/activity_record.h"
#include "core/base/product.h"
#include "core/base/units.h"
#include "core/peak/peak.h"

namespace mfu {

/// Every distinct string of a trace once. Ids are dense and start at 0, which is the empty string.
class StringTable {
 public:
  StringTable() { intern({}); }
  /// The id of `text`, new or known.
  std::uint32_t intern(std::string_view text);
  [[nodiscard]] const std::string& at(std::uint32_t id) const { return strings_[id]; }
  [[nodiscard]] std::size_t size() const noexcept { return strings_.size(); }

 private:
  std::deque<std::string> strings_;  // a deque, because the index refers into it
  std::unordered_map<std::string_view, std::uint32_t> index_;
};

/// Times beyond these are taken for garbage, as are durations beyond kLongestEventNs: so sums and differences of times
/// stay within 64 bits. Unix times fit until 2116.
inline constexpr TimeNs kLargestTimeNs = TimeNs{1} << 62;
inline constexpr TimeNs kSmallestTimeNs = -(TimeNs{1} << 60);
inline constexpr DurationNs kLongestEventNs = DurationNs{1} << 53;

/// Checks begin and end of a record and repairs what can be: an end before the begin becomes the begin and is counted
/// (`negative_durations`). False: not usable.
[[nodiscard]] bool check_times(TimeNs begin_ns, TimeNs& end_ns, std::map<std::string, std::uint64_t>& notes);

/// Counted oddities of a trace, by a stable name.
using TraceNotes = std::map<std::string, std::uint64_t>;

/// One host process. A Kineto file is one process, with any pids, unless traces of several ranks were merged.
struct TraceProcess {
  std::string name;  ///< as the figures print it: `0` for Kineto, the pid for nsys
  TraceNotes notes;
};

/// One host thread that launched work or opened a range.
struct TraceThread {
  std::uint32_t process = 0;  ///< index into Trace::processes
  std::string label;          ///< as the figures print it: `('pid', 'tid')` for Kineto, the globalTid for nsys
  std::int64_t tid = -1;      ///< OS thread id; -1 where the file has a word instead
};

/// One device as one process sees it.
struct TraceDevice {
  std::uint32_t process = 0;
  std::string label;              ///< the number that the records carry, as text
  DeviceId id{};                  ///< the same as a number; 0 where it is none
  DeviceFacts facts;              ///< as the file describes it; an empty name: not at all
  double memory_bytes_per_s = 0;  ///< [B/s], 0: not said
};

struct TraceStream {
  std::uint32_t device = 0;  ///< index into Trace::devices
  std::string label;
  StreamId id{};
};

enum class RangeKind : std::uint8_t { kPushPop, kStartEnd };

/// One closed host-side annotation.
struct TraceRange {
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;         ///< >= begin_ns
  std::uint32_t name = 0;    ///< Trace::strings, as the program wrote it
  std::uint32_t key = 0;     ///< Trace::strings: the name under which figures are added up (range_key)
  std::uint32_t domain = 0;  ///< Trace::strings; the empty string is the default domain
  std::uint32_t thread = 0;  ///< index into Trace::threads
  std::int64_t payload = 0;  ///< NVTX payload as an integer
  bool has_payload = false;
  bool recorded = false;     ///< the library recorded it: region is what it was then
  std::uint32_t region = 0;  ///< Trace::strings
  RangeKind kind = RangeKind::kPushPop;
};

/// One host API record that carries a correlation id.
struct TraceLaunch {
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;
  std::uint64_t correlation = 0;  ///< unique within a process among the records with `counted`
  std::uint32_t name = 0;         ///< Trace::strings
  std::uint32_t thread : 24 = 0;  ///< index into Trace::threads
  std::uint32_t graph : 1 = 0;    ///< launches a CUDA or HIP graph
  std::uint32_t memcpy : 1 = 0;   ///< copies
  std::uint32_t memset : 1 = 0;   ///< sets
  std::uint32_t kernel : 1 = 0;   ///< launches one kernel
  std::uint32_t capture : 1 = 0;  ///< begins to capture a graph
  std::uint32_t counted : 1 = 1;  ///< false: another record with the same id in the same process starts before it
};
static_assert(sizeof(TraceLaunch) == 32);

inline constexpr std::uint32_t kNoLaunch = 0xFFFFFFFFu;

/// One device record.
struct TraceActivity {
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;                 ///< >= begin_ns
  std::uint64_t extent = 0;          ///< as ActivityRecord::extent: pack(Grid) or bytes
  std::uint64_t correlation = 0;     ///< meaningless without has_correlation
  std::uint32_t name = 0;            ///< Trace::strings: the kernel's demangled name, or what the file calls a copy
  std::uint32_t launch = kNoLaunch;  ///< index into Trace::launches, filled by link_launches
  std::uint32_t stream = 0;          ///< index into Trace::streams, which knows the device
  std::uint16_t process = 0;         ///< index into Trace::processes
  ActivityKind kind = ActivityKind::kKernel;
  std::uint8_t nccl : 1 = 0;  ///< an NCCL kernel by its name (is_nccl_kernel)
  std::uint8_t has_correlation : 1 = 0;
  std::uint8_t direction : 2 = 0;  ///< CopyDirection
};
static_assert(sizeof(TraceActivity) == 48);

/// A host operator that asked for a matrix product.
struct TraceOperator {
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;
  std::uint32_t thread = 0;  ///< index into Trace::threads
  Product product;
};

/// The matrix product that a kernel is of.
struct TraceProduct {
  std::optional<Product> product;  ///< none: unknown
  bool first = false;              ///< as ActivityRecord::first_of_product
};

enum class TraceFormat : std::uint8_t { kKineto, kNsys };

/// Facts about a trace as a whole.
struct TraceFacts {
  std::string path;  ///< as given
  TraceFormat format = TraceFormat::kKineto;
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world_size;
  std::int64_t base_ns = 0;                 ///< add to every time for UTC; 0: unknown or already absolute
  std::vector<std::string> gpu_names;       ///< distinct names of the GPUs that the file lists, sorted
  std::uint64_t events = 0;                 ///< Kineto: elements of traceEvents
  std::vector<std::string> top_level_keys;  ///< Kineto, sorted, without traceEvents
  std::vector<std::pair<std::string, std::string>> export_info;  ///< nsys: the version rows of its metadata
  std::vector<std::string> nvtx_domains;                         ///< nsys: names of registered domains, sorted
  std::vector<std::string> tables;  ///< nsys: the CUPTI, graph and NVTX tables with rows or without, sorted
  /// The library's note in a trace that it recorded itself (MFU_TRACE).
  struct Recording {
    TimeNs origin_ns = 0;   ///< where its windows began, on the file's zero
    TimeNs end_ns = 0;      ///< when it was written
    bool whole_run = true;  ///< nothing that ran since the origin is missing
    std::int64_t pid = 0;   ///< of the process; 0: not said
    /// Calls of cuBLAS were looked for: a matmul kernel without a product is one whose call was not seen.
    bool products = false;
  };
  std::optional<Recording> recording;
  TraceNotes notes;  ///< oddities that belong to no single process
};

/// A whole trace. Times are ns on the file's own zero.
struct Trace : TraceFacts {
  StringTable strings;
  std::vector<TraceProcess> processes;
  std::vector<TraceThread> threads;
  std::vector<TraceDevice> devices;
  std::vector<TraceStream> streams;
  std::vector<TraceRange> ranges;                 ///< in file order
  std::vector<TraceLaunch> launches;              ///< in file order
  std::vector<TraceActivity> activities;          ///< in file order; nsys: kernels, copies, sets, graphs
  std::vector<TraceOperator> operators;           ///< Kineto with record_shapes: the products, in file order
  std::vector<TraceProduct> product_of_activity;  ///< by activity; empty: nothing is known of products
};

/// Called now and then while a file is read: bytes done, bytes in all (of the file as stored).
using ReadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// The last step of every reader: joins each activity to the host record with its correlation id in its process (the
/// one that starts first where several share it) and counts the others in the process's notes
/// (`duplicate_correlation_on_host`). O(n).
void link_launches(Trace& trace);

/// The activity as the live library would have decoded it. `correlation` is the index of its launch + 1 (0: none),
/// which is unique across processes; `name` is the id in Trace::strings.
[[nodiscard]] ActivityRecord to_kernel_record(const Trace& trace, const TraceActivity& activity);

/// True for a name that starts with `nccl` or contains `ncclKernel` or `ncclDevKernel`.
[[nodiscard]] bool is_nccl_kernel(std::string_view name) noexcept;

/// The name under which ranges are added up: cut at the first of the tails that emit_nvtx appends
/// (`, op_id =`, `, seq =`, `, sizes =`, `, input_op_ids =`).
[[nodiscard]] std::string_view range_key(std::string_view name) noexcept;

/// Sets the flags of a launch that say what it launches by the name of the API call (CUDA or HIP).
void classify_launch(TraceLaunch& launch, std::string_view api_name) noexcept;

}  // namespace mfu
