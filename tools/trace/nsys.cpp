#include "tools/trace/nsys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/kernels/kernel_traits.h"
#include "tools/trace/nsys_database.h"

namespace mfu {
namespace {

// NVTX_EVENTS.eventType, as the comments of the exporter's own DDL number them.
constexpr std::int64_t kPushPopRange = 59;
constexpr std::int64_t kStartEndRange = 60;
constexpr std::int64_t kImportedPushPopRange = 70;
constexpr std::int64_t kImportedStartEndRange = 71;
constexpr std::int64_t kDomainCreate = 75;

/// The pid in a globalTid or globalPid: bits 24 to 47. Below are the thread, above the virtual machine and the host.
std::int64_t pid_of(std::int64_t global) noexcept { return (global >> 24) & 0xFFFFFF; }

/// The host calls as read, with threads and names numbered separately: another thread can read them meanwhile.
struct HostCalls {
  std::vector<TraceLaunch> launches;  ///< `thread` and `name` index the two below
  std::vector<std::int64_t> global_tids;
  std::vector<std::int64_t> name_ids;  ///< StringIds ids; kNoName: none
  std::vector<TraceNotes> notes;       ///< by thread
  static constexpr std::int64_t kNoName = std::numeric_limits<std::int64_t>::min();
};

Result<HostCalls> read_host_calls(const NsysDatabase& database, const NsysSchema& schema) {
  HostCalls calls;
  std::unordered_map<std::int64_t, std::uint32_t> threads;
  std::unordered_map<std::int64_t, std::uint32_t> names;
  std::int64_t last_tid = 0;
  std::uint32_t last_thread = 0;
  const auto thread_of = [&](std::int64_t tid) {
    if (tid == last_tid && !calls.global_tids.empty()) return last_thread;
    const auto [at, fresh] = threads.try_emplace(tid, static_cast<std::uint32_t>(calls.global_tids.size()));
    if (fresh) {
      calls.global_tids.push_back(tid);
      calls.notes.emplace_back();
    }
    last_tid = tid;
    return last_thread = at->second;
  };
  auto done = for_each_row(database, schema, "CUPTI_ACTIVITY_KIND_RUNTIME",
                           {"start", "end", "globalTid", "correlationId", "nameId"}, 3, [&](const NsysRow& row) {
                             const std::uint32_t thread = thread_of(row.integer(2));
                             if (row.is_null(3)) return;  // not a call that could own work
                             const TimeNs begin_ns = row.integer(0);
                             TimeNs end_ns = row.is_null(1) ? begin_ns : row.integer(1);
                             if (!row.is_integer(0) || !check_times(begin_ns, end_ns, calls.notes[thread])) {
                               ++calls.notes[thread]["rows_with_unusable_time"];
                               return;
                             }
                             const std::int64_t name_id = row.is_null(4) ? HostCalls::kNoName : row.integer(4);
                             const auto [name, fresh] =
                                 names.try_emplace(name_id, static_cast<std::uint32_t>(calls.name_ids.size()));
                             if (fresh) calls.name_ids.push_back(name_id);
                             TraceLaunch launch;
                             launch.begin_ns = begin_ns;
                             launch.end_ns = end_ns;
                             launch.correlation = static_cast<std::uint64_t>(row.integer(3));
                             launch.name = name->second;
                             launch.thread = thread & 0xFFFFFFu;
                             calls.launches.push_back(launch);
                           });
  if (!done) return done.error();
  return calls;
}

class NsysReader {
 public:
  /// \param second another connection to the same file, on which a thread reads the host calls; none: no thread
  NsysReader(const NsysDatabase& database, const NsysDatabase* second, const ReadProgress& progress)
      : database_(database), second_(second), progress_(progress) {
    trace_.path = database.name();
    trace_.format = TraceFormat::kNsys;
  }

  Result<Trace> read() {
    using Step = Result<void> (NsysReader::*)();
    constexpr Step kSteps[] = {&NsysReader::read_metadata, &NsysReader::read_strings, &NsysReader::read_kernels,
                               &NsysReader::read_copies,   &NsysReader::read_sets,    &NsysReader::read_graphs,
                               &NsysReader::read_domains,  &NsysReader::read_ranges,  &NsysReader::read_gpus};
    if (Result<void> result = read_schema(); !result) return result.error();
    // The two largest tables, host calls and kernels, are read side by side.
    std::future<Result<HostCalls>> calls;
    if (second_ != nullptr) {
      try {
        calls = std::async(std::launch::async, [this] { return read_host_calls(*second_, columns_); });
      } catch (const std::system_error&) {
        // No thread to be had: read them below.
      }
    }
    std::uint64_t done = 0;
    std::optional<Error> failed;
    for (const Step step : kSteps) {
      if (Result<void> result = (this->*step)(); !result) {
        failed = result.error();
        break;
      }
      if (progress_) progress_(++done, std::size(kSteps));
    }
    Result<HostCalls> read = calls.valid() ? calls.get() : read_host_calls(database_, columns_);
    if (failed) return *failed;
    if (!read) return read.error();
    take_host_calls(std::move(read).value());
    order_processes();
    link_launches(trace_);
    return std::move(trace_);
  }

 private:
  // --- schema -----------------------------------------------------------------------------------------------------

  Result<void> read_schema() {
    // Views and virtual tables of a strange file are not looked into.
    auto done =
        take_rows(database_, "sqlite_master", "t.name, c.name",
                  "sqlite_master AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table' AND t.rootpage > 0",
                  [&](const NsysRow& row) { columns_[std::string(row.text(0))].insert(std::string(row.text(1))); });
    if (!done) return done;
    if (columns_.contains("StringTable") && !columns_.contains("StringIds"))
      return Error{
          database_.name() +
          ": is a database of nvprof, a form that is not read: expected `nsys profile --trace=cuda,nvtx`, then "
          "`nsys export --type sqlite`"};
    bool known = false;
    for (auto& [table, columns] : columns_) {
      if (table.starts_with("NVTX_EVENTS") && ranges_table_.empty()) ranges_table_ = table;  // or NVTX_EVENTS_V2 alone
      if (table.starts_with("CUPTI_ACTIVITY") || table.starts_with("CUDA_GRAPH") || table == ranges_table_) {
        trace_.tables.push_back(table);
        known = true;
      }
      known = known || table == "StringIds" || table == "META_DATA_EXPORT" || table == "EXPORT_META_DATA";
    }
    if (!known) {
      return Error{database_.name() +
                   ": is an SQLite file without any table of Nsight Systems (CUPTI_ACTIVITY_KIND_KERNEL, NVTX_EVENTS, "
                   "StringIds ...): expected the export of `nsys export --type sqlite`"};
    }
    return {};
  }

  template <typename Take>
  Result<void> for_each(const std::string& table, const std::vector<std::string>& columns, std::size_t required,
                        Take take) {
    return for_each_row(database_, columns_, table, columns, required, std::move(take));
  }

  // --- identities ---------------------------------------------------------------------------------------------------

  std::uint32_t process_of(std::int64_t pid) {
    if (pid == last_pid_) return last_process_;
    const auto [at, fresh] = processes_.try_emplace(pid, static_cast<std::uint32_t>(trace_.processes.size()));
    if (fresh) trace_.processes.push_back({std::to_string(pid), {}});
    last_pid_ = pid;
    return last_process_ = at->second;
  }

  std::uint32_t thread_of(std::int64_t global_tid) {
    if (global_tid == last_tid_ && !trace_.threads.empty()) return last_thread_;
    const auto [at, fresh] = threads_.try_emplace(global_tid, static_cast<std::uint32_t>(trace_.threads.size()));
    if (fresh) {
      trace_.threads.push_back({process_of(pid_of(global_tid)), std::to_string(global_tid), global_tid & 0xFFFFFF});
    }
    last_tid_ = global_tid;
    return last_thread_ = at->second;
  }

  /// The stream of a device record. Devices and streams are numbered per process.
  std::uint32_t stream_of(std::uint32_t process, std::int64_t device, std::int64_t stream) {
    const StreamKey key{process, device, stream};
    if (!trace_.streams.empty() && key == last_key_) return last_stream_;
    const auto [at, fresh] = streams_.try_emplace(key, static_cast<std::uint32_t>(trace_.streams.size()));
    if (fresh) {
      const auto [known, new_device] =
          devices_.try_emplace({process, device}, static_cast<std::uint32_t>(trace_.devices.size()));
      if (new_device) {
        TraceDevice entry;
        entry.process = process;
        entry.label = std::to_string(device);
        entry.id = DeviceId{static_cast<std::uint32_t>(device)};
        trace_.devices.push_back(std::move(entry));
      }
      trace_.streams.push_back({known->second, std::to_string(stream), StreamId{static_cast<std::uint32_t>(stream)}});
    }
    last_key_ = key;
    return last_stream_ = at->second;
  }

  /// Text of a StringIds id; an id that is not there is named by its number.
  std::uint32_t string_of(std::int64_t id) {
    if (id >= 0 && id < static_cast<std::int64_t>(strings_.size()) && strings_[static_cast<std::size_t>(id)] != kNone)
      return strings_[static_cast<std::size_t>(id)];
    if (const auto found = far_strings_.find(id); found != far_strings_.end()) return found->second;
    ++trace_.notes["string_ids_without_string"];
    const std::uint32_t name = trace_.strings.intern(fmt::format("StringIds[{}]", id));
    set_string(id, name);
    return name;
  }

  void set_string(std::int64_t id, std::uint32_t name) {
    // Ids count up from 0; others are kept apart.
    if (id < 0 || id > static_cast<std::int64_t>(2 * strings_.size() + 1024)) {
      far_strings_.insert_or_assign(id, name);
      return;
    }
    const auto at = static_cast<std::size_t>(id);
    if (at >= strings_.size()) strings_.resize(at + 1, kNone);
    strings_[at] = name;
  }

  // --- tables -------------------------------------------------------------------------------------------------------

  Result<void> read_metadata() {
    for (const char* table : {"META_DATA_EXPORT", "EXPORT_META_DATA"}) {
      auto done = for_each(table, {"name", "value"}, 2, [&](const NsysRow& row) {
        const bool version =
            row.text(0).starts_with("EXPORT_PRODUCT_VERSION") || row.text(0).starts_with("EXPORT_SCHEMA_VERSION");
        if (version) trace_.export_info.emplace_back(row.text(0), row.text(1));
      });
      if (!done) return done;
    }
    return for_each("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"}, 0,
                    [&](const NsysRow& row) { trace_.base_ns = row.integer(0); });
  }

  Result<void> read_strings() {
    return for_each("StringIds", {"id", "value"}, 2,
                    [&](const NsysRow& row) { set_string(row.integer(0), trace_.strings.intern(row.text(1))); });
  }

  void take_host_calls(HostCalls calls) {
    std::vector<std::uint32_t> threads;
    for (std::size_t i = 0; i < calls.global_tids.size(); ++i) {
      threads.push_back(thread_of(calls.global_tids[i]));
      TraceNotes& notes = trace_.processes[trace_.threads[threads[i]].process].notes;
      for (const auto& [name, count] : calls.notes[i]) notes[name] += count;
    }
    std::vector<TraceLaunch> named(calls.name_ids.size());  // name and flags, once per name
    for (std::size_t i = 0; i < named.size(); ++i) {
      named[i].name = calls.name_ids[i] == HostCalls::kNoName ? 0 : string_of(calls.name_ids[i]);
      classify_launch(named[i], trace_.strings.at(named[i].name));
    }
    for (TraceLaunch& launch : calls.launches) {
      const TraceLaunch& facts = named[launch.name];
      launch.name = facts.name;
      launch.graph = facts.graph;
      launch.memcpy = facts.memcpy;
      launch.memset = facts.memset;
      launch.kernel = facts.kernel;
      launch.capture = facts.capture;
      launch.thread = threads[launch.thread] & 0xFFFFFFu;
    }
    trace_.launches = std::move(calls.launches);
  }

  /// A device record by the columns that all of them have: start, end, deviceId, streamId, correlationId, globalPid.
  /// None: not usable, and counted.
  std::optional<TraceActivity> take_activity(const NsysRow& row, ActivityKind kind) {
    if (kind == ActivityKind::kGraph && row.integer(0) == 0 && row.integer(1) == 0) {  // CUPTI: no timing was taken
      ++trace_.notes["graph_records_without_time"];
      return std::nullopt;
    }
    // Without a globalPid (no schema seen lacks it) the record belongs to the only process there is, or to none.
    const std::int64_t pid =
        row.is_null(5) ? (processes_.size() == 1 ? processes_.begin()->first : 0) : pid_of(row.integer(5));
    const std::uint32_t process = process_of(pid);
    TraceNotes& notes = trace_.processes[process].notes;
    if (process > 0xFFFF) return std::nullopt;
    TraceActivity activity;
    activity.begin_ns = row.integer(0);
    activity.end_ns = row.integer(1);
    if (!row.is_integer(0) || !row.is_integer(1) || !check_times(activity.begin_ns, activity.end_ns, notes)) {
      ++notes["rows_with_unusable_time"];
      return std::nullopt;
    }
    activity.process = static_cast<std::uint16_t>(process);
    activity.stream = stream_of(process, row.integer(2), row.integer(3));
    activity.has_correlation = !row.is_null(4);
    activity.correlation = static_cast<std::uint64_t>(row.integer(4));
    activity.kind = kind;
    return activity;
  }

  /// Rows of device work: those that take_activity reads, and `more` behind them, from which `complete` fills the rest.
  template <typename Complete>
  Result<void> read_activities(const char* table, ActivityKind kind, const std::vector<std::string>& more,
                               Complete complete) {
    std::vector<std::string> columns{"start", "end", "deviceId", "streamId", "correlationId", "globalPid"};
    columns.insert(columns.end(), more.begin(), more.end());
    return for_each(table, columns, 2, [&](const NsysRow& row) {
      std::optional<TraceActivity> activity = take_activity(row, kind);
      if (!activity) return;
      complete(row, *activity);
      trace_.activities.push_back(*activity);
    });
  }

  Result<void> read_kernels() {
    return read_activities("CUPTI_ACTIVITY_KIND_KERNEL", ActivityKind::kKernel,
                           {"demangledName", "shortName", "gridX", "gridY", "gridZ"},
                           [&](const NsysRow& row, TraceActivity& activity) {
                             const bool has_short = !row.is_null(7);
                             const std::uint32_t short_name = has_short ? string_of(row.integer(7)) : 0;
                             activity.name = row.is_null(6) ? short_name : string_of(row.integer(6));
                             const auto side = [&row](int column) {
                               const auto blocks = std::clamp<std::int64_t>(row.integer(column), 0, 0xFFFFFFFF);
                               return static_cast<std::uint32_t>(blocks);
                             };
                             activity.extent = pack({side(8), side(9), side(10)});
                             activity.nccl = nccl(has_short ? short_name : activity.name);
                           });
  }

  bool nccl(std::uint32_t name) {
    if (name >= nccl_.size()) nccl_.resize(name + 1, kUnknown);
    if (nccl_[name] == kUnknown) nccl_[name] = is_nccl_kernel(trace_.strings.at(name)) ? 1 : 0;
    return nccl_[name] == 1;
  }

  Result<void> read_copies() {
    // CUpti_ActivityMemcpyKind
    static const std::map<std::int64_t, std::string_view> kKinds{
        {1, "Memcpy HtoD"}, {2, "Memcpy DtoH"}, {3, "Memcpy HtoA"}, {4, "Memcpy AtoH"}, {5, "Memcpy AtoA"},
        {6, "Memcpy AtoD"}, {7, "Memcpy DtoA"}, {8, "Memcpy DtoD"}, {9, "Memcpy HtoH"}, {10, "Memcpy PtoP"}};
    return read_activities("CUPTI_ACTIVITY_KIND_MEMCPY", ActivityKind::kMemcpy, {"copyKind", "bytes"},
                           [&](const NsysRow& row, TraceActivity& activity) {
                             const auto kind = kKinds.find(row.integer(6));
                             const std::string_view name = kind == kKinds.end() ? "Memcpy" : kind->second;
                             activity.name = trace_.strings.intern(name);
                             activity.direction = static_cast<std::uint8_t>(copy_direction(name)) & 3u;
                             activity.extent = bytes(row, 7);
                           });
  }

  Result<void> read_sets() {
    return read_activities("CUPTI_ACTIVITY_KIND_MEMSET", ActivityKind::kMemset, {"bytes"},
                           [&](const NsysRow& row, TraceActivity& activity) {
                             activity.name = trace_.strings.intern("Memset");
                             activity.extent = bytes(row, 6);
                           });
  }

  static std::uint64_t bytes(const NsysRow& row, int column) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, row.integer(column)));
  }

  /// Whole graphs, recorded as one row each in the default capture mode.
  Result<void> read_graphs() {
    return read_activities("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ActivityKind::kGraph, {},
                           [&](const NsysRow&, TraceActivity& activity) {
                             activity.name = trace_.strings.intern("CUDA graph");
                             ++trace_.processes[activity.process].notes["whole_graph_records"];
                           });
  }

  Result<void> read_domains() {
    auto done =
        for_each(ranges_table_, {"eventType", "text", "textId", "globalTid", "domainId"}, 1, [&](const NsysRow& row) {
          if (row.integer(0) != kDomainCreate) return;
          const std::uint32_t name = text_of(row, 1, 2);
          domains_[{pid_of(row.integer(3)), row.integer(4)}] = name;
        });
    if (!done) return done;
    std::set<std::string> names;
    for (const auto& [key, name] : domains_) names.insert(trace_.strings.at(name));
    trace_.nvtx_domains.assign(names.begin(), names.end());
    return {};
  }

  /// Name of an NVTX row: its own text, else the registered string.
  std::uint32_t text_of(const NsysRow& row, int text, int id) {
    if (!row.is_null(text)) return trace_.strings.intern(row.text(text));
    return row.is_null(id) ? 0 : string_of(row.integer(id));
  }

  Result<void> read_ranges() {
    return for_each(
        ranges_table_,
        {"start", "end", "eventType", "globalTid", "text", "textId", "domainId", "uint64Value", "int64Value",
         "uint32Value", "int32Value", "doubleValue", "floatValue"},
        4, [&](const NsysRow& row) {
          const std::int64_t type = row.integer(2);
          const bool imported = type == kImportedPushPopRange || type == kImportedStartEndRange;
          if (type != kPushPopRange && type != kStartEndRange && !imported) return;
          const std::uint32_t thread = thread_of(row.integer(3));
          TraceNotes& notes = trace_.processes[trace_.threads[thread].process].notes;
          if (imported) {
            ++notes["imported_ranges_left_out"];
            return;
          }
          if (row.is_null(1)) {
            ++notes["unterminated_ranges"];
            return;
          }
          TraceRange range;
          range.begin_ns = row.integer(0);
          range.end_ns = row.integer(1);
          if (!row.is_integer(0) || !row.is_integer(1) || !check_times(range.begin_ns, range.end_ns, notes)) {
            ++notes["rows_with_unusable_time"];
            return;
          }
          range.thread = thread;
          range.kind = type == kPushPopRange ? RangeKind::kPushPop : RangeKind::kStartEnd;
          range.name = text_of(row, 4, 5);
          if (range.name >= keys_.size()) keys_.resize(std::max<std::size_t>(range.name + 1, keys_.size() * 2), kNone);
          if (keys_[range.name] == kNone)
            keys_[range.name] = trace_.strings.intern(range_key(trace_.strings.at(range.name)));
          range.key = keys_[range.name];
          if (const auto domain = domains_.find({pid_of(row.integer(3)), row.integer(6)}); domain != domains_.end())
            range.domain = domain->second;
          for (int column = 7; column < 13 && !range.has_payload; ++column) {
            if (row.is_null(column)) continue;
            range.has_payload = true;
            range.payload = row.integer(column);
          }
          trace_.ranges.push_back(range);
        });
  }

  Result<void> read_gpus() {
    std::set<std::string> names;
    std::map<std::int64_t, TraceDevice> by_gpu;      // TARGET_INFO_GPU.id
    std::map<std::int64_t, TraceDevice> by_ordinal;  // its cuDevice, or its id where the table has none
    auto done = for_each("TARGET_INFO_GPU",
                         {"name", "id", "deviceId", "cuDevice", "smCount", "clockRate", "totalMemory",
                          "memoryBandwidth", "computeMajor", "computeMinor"},
                         0, [&](const NsysRow& row) {
                           TraceDevice gpu;
                           gpu.facts.name = row.text(0);
                           gpu.facts.sm_count = static_cast<std::uint32_t>(row.integer(4));
                           gpu.facts.clock_khz = static_cast<std::uint32_t>(row.integer(5) / 1000);
                           gpu.facts.memory_bytes = static_cast<std::uint64_t>(row.integer(6));
                           gpu.memory_bytes_per_s = row.real(7);
                           gpu.facts.cc_major = static_cast<std::uint32_t>(row.integer(8));
                           gpu.facts.cc_minor = static_cast<std::uint32_t>(row.integer(9));
                           if (!gpu.facts.name.empty()) names.insert(gpu.facts.name);
                           const std::int64_t id = row.is_null(1) ? row.integer(2) : row.integer(1);
                           by_gpu[id] = gpu;
                           // Adapters that CUDA does not run on (Intel, Microsoft) have no compute capability.
                           TraceDevice& known = by_ordinal[row.is_null(3) ? id : row.integer(3)];
                           if (gpu.facts.cc_major > 0 || known.facts.cc_major == 0) known = gpu;
                         });
    if (!done) return done;
    trace_.gpu_names.assign(names.begin(), names.end());
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> gpu_of;  // (pid, CUDA ordinal)
    done = for_each("TARGET_INFO_CUDA_DEVICE", {"gpuId", "cudaId", "pid"}, 0, [&](const NsysRow& row) {
      gpu_of[{row.integer(2), row.integer(1)}] = row.integer(0);
    });
    if (!done) return done;
    for (const auto& [key, index] : devices_) {
      TraceDevice& device = trace_.devices[index];
      const std::int64_t pid = std::strtoll(trace_.processes[key.first].name.c_str(), nullptr, 10);
      const auto mapped = gpu_of.find({pid, key.second});
      const auto& table = mapped == gpu_of.end() ? by_ordinal : by_gpu;
      const auto found = table.find(mapped == gpu_of.end() ? key.second : mapped->second);
      if (found == table.end()) continue;
      device.facts = found->second.facts;
      device.memory_bytes_per_s = found->second.memory_bytes_per_s;
    }
    return {};
  }

  /// Processes by pid, whichever table showed them first.
  void order_processes() {
    std::vector<std::uint32_t> rank(trace_.processes.size());
    std::vector<TraceProcess> ordered;
    for (const auto& [pid, index] : processes_) {  // a map: ascending
      rank[index] = static_cast<std::uint32_t>(ordered.size());
      ordered.push_back(std::move(trace_.processes[index]));
    }
    trace_.processes = std::move(ordered);
    for (TraceThread& thread : trace_.threads) thread.process = rank[thread.process];
    for (TraceDevice& device : trace_.devices) device.process = rank[device.process];
    for (TraceActivity& activity : trace_.activities)
      activity.process = static_cast<std::uint16_t>(rank[activity.process]);
  }

  struct StreamKey {
    std::uint32_t process;
    std::int64_t device, stream;
    auto operator<=>(const StreamKey&) const = default;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  static constexpr std::uint8_t kUnknown = 2;

  const NsysDatabase& database_;
  const NsysDatabase* second_;
  const ReadProgress& progress_;
  Trace trace_;
  NsysSchema columns_;  ///< by table
  std::string ranges_table_;
  std::map<std::int64_t, std::uint32_t> processes_;
  std::unordered_map<std::int64_t, std::uint32_t> threads_;
  std::map<StreamKey, std::uint32_t> streams_;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> devices_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> domains_;  ///< (pid, domainId) > name
  std::vector<std::uint32_t> strings_;                           ///< StringIds.id > Trace::strings; kNone: no such id
  std::unordered_map<std::int64_t, std::uint32_t> far_strings_;  ///< the same of ids that are not near those
  std::vector<std::uint8_t> nccl_;                               ///< by name
  std::vector<std::uint32_t> keys_;                              ///< by name: its range key
  // The last of each, because consecutive rows mostly share them.
  std::int64_t last_pid_ = -1, last_tid_ = 0;
  std::uint32_t last_process_ = 0, last_thread_ = 0, last_stream_ = 0;
  StreamKey last_key_{};
};

/// A file in TMPDIR that is removed at the latest with this object.
class TemporaryFile {
 public:
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    remove_name();
    if (fd_ >= 0) ::close(fd_);
  }
  /// Takes the name away; who has the file open keeps it.
  void remove_name() {
    if (fd_ >= 0 && !path_.empty()) ::unlink(path_.c_str());
    path_.clear();
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Makes the file and unpacks the whole of `source` into it.
  Result<void> create(ByteSource& source, const ReadProgress& progress) {
    std::vector<char> piece(1 << 20);
    const auto failed = [&] {
      return Error{
          fmt::format("{}: cannot be unpacked into {}: {} (set TMPDIR)", source.name(), path_, std::strerror(errno))};
    };
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/mfu-trace-XXXXXX";
    fd_ = ::mkostemp(path_.data(), O_CLOEXEC);
    if (fd_ < 0) return failed();
    for (;;) {
      const Result<std::size_t> got = source.read(piece);
      if (!got) return got.error();
      for (std::size_t at = 0; at < got.value();) {
        const ssize_t wrote = ::write(fd_, piece.data() + at, got.value() - at);
        if (wrote < 0 && errno != EINTR) return failed();
        if (wrote > 0) at += static_cast<std::size_t>(wrote);
      }
      if (progress) progress(source.stored_bytes_read(), source.stored_bytes());
      if (got.value() < piece.size()) break;
    }
    if (source.cut_off()) {
      return Error{source.name() + ": the gzip data break off before their end: expected a whole SQLite export"};
    }
    return {};
  }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace

Result<Trace> read_nsys(ByteSource source, const ReadProgress& progress) {
  NsysDatabase database(source.name());
  NsysDatabase second(source.name());
  TemporaryFile unpacked;
  std::string path = source.name();
  if (source.gzip()) {
    if (auto ok = unpacked.create(source, progress); !ok) return ok.error();
    path = unpacked.path();
  }
  if (auto ok = database.open_file(path); !ok) return ok.error();
  if (auto ok = second.open_file(path); !ok) return ok.error();
  unpacked.remove_name();  // both have it open; SQLite follows links, so a path under /proc would not have done
  return NsysReader(database, &second, progress).read();
}

Result<Trace> read_nsys_bytes(std::span<const char> bytes, std::string name) {
  NsysDatabase database(std::move(name));
  if (auto ok = database.open_bytes(bytes); !ok) return ok.error();
  const ReadProgress no_progress;
  return NsysReader(database, nullptr, no_progress).read();
}

}  // namespace mfu
