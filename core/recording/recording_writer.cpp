#include "core/recording/recording_writer.h"

#include <fcntl.h>
#include <fmt/compile.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/clock.h"
#include "core/base/line_file.h"
#include "core/base/printable.h"

namespace mfu {
namespace {

constexpr TimeNs kOpen = std::numeric_limits<TimeNs>::max();

std::string quoted(std::string_view text, std::size_t max_bytes) {
  return nlohmann::json(printable(text, max_bytes)).dump();
}

/// As Kineto words it, without the kinds of memory: those are not known.
std::string_view copy_name(CopyDirection direction) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"Memcpy", "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD"};
  return kNames[static_cast<std::size_t>(direction)];
}

/// At which moment, on which thread a launch is shown so that its region is the innermost one open there: the last such
/// moment before its work began.
class LaunchPlaces {
 public:
  struct Place {
    std::uint32_t thread = 0;  ///< 0: no thread of the program
    TimeNs at = 0;
  };

  explicit LaunchPlaces(const TraceSnapshot& snapshot) {
    std::vector<const TracedInstance*> order;
    for (const TracedInstance& i : snapshot.instances)
      if (i.kind != InstanceKind::kNested) order.push_back(&i);
    std::sort(order.begin(), order.end(), [](const TracedInstance* a, const TracedInstance* b) {
      return a->open_ns != b->open_ns ? a->open_ns < b->open_ns : a->close_ns > b->close_ns;
    });
    std::vector<Interval> of_threads;
    for (const TracedInstance* i : order) {
      covered_.push_back({i->open_ns, i->close_ns});
      if (i->kind == InstanceKind::kThread) of_threads.push_back({i->open_ns, i->close_ns});
    }
    make_disjoint(covered_);
    make_disjoint(of_threads);

    std::unordered_map<std::uint32_t, std::vector<const TracedInstance*>> stacks;  // open ones, by thread
    std::vector<const TracedInstance*> of_process;
    for (const TracedInstance* i : order) {
      Region& region = regions_[raw(i->id)];
      region.thread = i->os_thread;
      region.innermost = {{i->open_ns, i->close_ns}};
      if (i->kind == InstanceKind::kProcess) {
        of_process.push_back(i);
        continue;
      }
      std::vector<const TracedInstance*>& stack = stacks[i->os_thread];
      while (!stack.empty() && stack.back()->close_ns <= i->open_ns) stack.pop_back();
      if (!stack.empty()) take_away(regions_[raw(stack.back()->id)], {i->open_ns, i->close_ns});
      stack.push_back(i);
    }
    for (const TracedInstance* i : of_process) {
      // Regions of threads come before it, and start/end ranges that opened later.
      std::vector<Interval> before = of_threads;
      for (const TracedInstance* other : of_process)
        if (other != i && other->open_ns >= i->open_ns) before.push_back({other->open_ns, other->close_ns});
      make_disjoint(before);
      for (const Interval& piece : before) take_away(regions_[raw(i->id)], piece);
    }
  }

  /// False: the region of `owner` is not kept any more.
  bool find(InstanceId owner, TimeNs begin_ns, Place& place) const {
    if (owner == InstanceId::kNone) {
      place = {0, begin_ns - 1};
      auto piece = std::upper_bound(covered_.begin(), covered_.end(), place.at,
                                    [](TimeNs t, const Interval& i) { return t < i.begin_ns; });
      if (piece != covered_.begin() && (--piece)->end_ns > place.at) place.at = piece->begin_ns - 1;
      return true;
    }
    const auto found = regions_.find(raw(owner));
    if (found == regions_.end()) return false;
    const Region& region = found->second;
    place.thread = region.thread;
    auto piece = std::upper_bound(region.innermost.begin(), region.innermost.end(), begin_ns,
                                  [](TimeNs t, const Interval& i) { return t < i.begin_ns; });
    if (piece == region.innermost.begin()) {
      place.at = region.innermost.empty() ? begin_ns : piece->begin_ns;
    } else {
      --piece;
      place.at = std::min(begin_ns, piece->end_ns - 1);
    }
    return true;
  }

 private:
  struct Region {
    std::uint32_t thread = 0;
    std::vector<Interval> innermost;  ///< in order
  };

  /// Pieces come in order, so that only the last interval of the region can meet them.
  static void take_away(Region& region, Interval piece) {
    if (region.innermost.empty()) return;
    Interval& last = region.innermost.back();
    if (piece.begin_ns >= last.end_ns || piece.end_ns <= last.begin_ns) return;
    const Interval rest{piece.end_ns, last.end_ns};
    last.end_ns = std::max(last.begin_ns, piece.begin_ns);
    if (last.length_ns() == 0) region.innermost.pop_back();
    if (rest.length_ns() > 0) region.innermost.push_back(rest);
  }

  /// The union, in order. Neighbours that touch become one: between them is no moment.
  static void make_disjoint(std::vector<Interval>& intervals) {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
    std::size_t kept = 0;
    for (const Interval& i : intervals) {
      if (kept > 0 && i.begin_ns <= intervals[kept - 1].end_ns)
        intervals[kept - 1].end_ns = std::max(intervals[kept - 1].end_ns, i.end_ns);
      else
        intervals[kept++] = i;
    }
    intervals.resize(kept);
  }

  std::unordered_map<std::uint32_t, Region> regions_;  ///< by instance id
  std::vector<Interval> covered_;                      ///< some region was open
};

/// Where the text goes. The first error is kept, and returned at the end.
class TraceFile {
 public:
  explicit TraceFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {
    // Signals of a full disk are blocked on the library's threads. O_NONBLOCK: a pipe without a reader is an error.
    // The name can be guessed: a file that is there is removed, never followed or written into.
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    struct ::stat there {};
    if (::lstat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
      error_ = EINVAL;  // a device or a link is not put aside for a file, not even where we may
      return;
    }
    ::unlink(part_.c_str());
    fd_ = ::open(part_.c_str(), kFlags, mode_beside(part_));
    if (fd_ < 0 && errno == ENOENT) {
      make_folders(part_);
      fd_ = ::open(part_.c_str(), kFlags, mode_beside(part_));
    }
    if (fd_ < 0) error_ = errno;
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(part_.c_str());
  }

  [[nodiscard]] fmt::memory_buffer& text() noexcept { return text_; }
  [[nodiscard]] bool failed() const noexcept { return error_ != 0; }
  void flush(std::size_t at_least = 1) {
    if (text_.size() < at_least) return;
    const char* at = text_.data();
    for (std::size_t left = text_.size(); left != 0 && error_ == 0;) {
      const ::ssize_t n = ::write(fd_, at, left);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        error_ = n < 0 ? errno : ENOSPC;
        break;
      }
      at += n;
      left -= static_cast<std::size_t>(n);
    }
    text_.clear();
  }
  Result<void> finish() {
    flush();
    const bool made = fd_ >= 0;
    if (made && ::close(std::exchange(fd_, -1)) != 0 && error_ == 0) error_ = errno;
    if (error_ == 0 && ::rename(part_.c_str(), path_.c_str()) != 0) error_ = errno;
    if (error_ == 0) return {};
    if (made) ::unlink(part_.c_str());
    return Error{path_ + ": cannot be written: " + std::strerror(error_)};
  }

 private:
  std::string path_, part_;
  int fd_ = -1;
  int error_ = 0;
  fmt::memory_buffer text_;
};

class RecordingWriter {
 public:
  RecordingWriter(TraceFile& file, const TraceSnapshot& snapshot, const TraceHeader& header, const RegionRules& rules,
                  const KernelNames& names, DurationNs budget_ns)
      : file_(file),
        snapshot_(snapshot),
        header_(header),
        rules_(rules),
        names_(names),
        deadline_ns_(time_of(CLOCK_MONOTONIC) + budget_ns) {}

  void write() {
    write_head();
    write_names();
    for (const TracedInstance& i : snapshot_.instances) write_instance(i);
    write_counters();
    write_activities();
    print("\n],\n\"mfu_end\": {{\"activities_left_out\": {}}}\n}}\n", left_out_);
  }

 private:
  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(file_.text()), format, std::forward<Args>(args)...);
    file_.flush(kPiece);
  }
  /// Starts an event; every one after the first has a comma before it.
  void begin_event() {
    fmt::memory_buffer& text = file_.text();
    if (any_event_) text.push_back(',');
    text.push_back('\n');
    any_event_ = true;
  }
  /// Microseconds with three decimals: the ns, exactly.
  struct Us {
    TimeNs ns;
  };
  void put(Us time) {
    const bool negative = time.ns < 0;
    const auto ns = static_cast<std::uint64_t>(negative ? -time.ns : time.ns);
    fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE("{}{}.{:03}"), negative ? "-" : "", ns / 1000,
                   ns % 1000);
  }
  void put(std::string_view text) { file_.text().append(text.data(), text.data() + text.size()); }
  void put_times(TimeNs begin_ns, TimeNs end_ns) {
    put(R"(,"ts":)");
    put(Us{begin_ns - snapshot_.origin_ns});
    put(R"(,"dur":)");
    put(Us{end_ns - begin_ns});
  }

  void write_head() {
    print("{{\n\"schemaVersion\": 1,\n\"displayTimeUnit\": \"ns\",\n\"baseTimeNanoseconds\": {},\n",
          snapshot_.origin_ns);
    print("\"distributedInfo\": {{\"rank\": {}, \"world_size\": {}}},\n", header_.rank, header_.world_size);
    print(
        "\"mfu\": {{\"version\": {}, \"host\": {}, \"pid\": {}, \"origin_ns\": 0, \"end_ns\": {}, \"whole_run\": {}, "
        "\"activities_overwritten\": {}, \"products\": {}, \"config\": {}}},\n\"deviceProperties\": [",
        quoted(header_.version, 100), quoted(header_.host, 300), header_.pid, snapshot_.end_ns - snapshot_.origin_ns,
        snapshot_.whole_run, snapshot_.left_out, header_.products != nullptr, header_.config_json);
    const char* comma = "";
    for (std::size_t d = 0; d < header_.devices.size(); ++d) {
      const DeviceFacts& facts = header_.devices[d].first;
      if (facts.name.empty()) continue;
      print(
          "{}\n  {{\"id\": {}, \"name\": {}, \"numSms\": {}, \"computeMajor\": {}, \"computeMinor\": {}, "
          "\"totalGlobalMem\": {}, \"clockRate\": {}, \"memoryClockRate\": {}, \"memoryBusWidth\": {}}}",
          comma, d, quoted(facts.name, 300), facts.sm_count, facts.cc_major, facts.cc_minor, facts.memory_bytes,
          facts.clock_khz, facts.memory_clock_khz, facts.memory_bus_bits);
      comma = ",";
    }
    print("],\n\"traceEvents\": [");
  }

  void write_names() {
    begin_event();
    print(R"({{"ph":"M","name":"process_name","pid":{0},"tid":0,"args":{{"name":{1}}}}})", header_.pid,
          quoted(fmt::format("{} rank {}", header_.host, header_.rank), 300));
    for (std::size_t d = 0; d < header_.devices.size(); ++d) {
      if (header_.devices[d].first.name.empty()) continue;
      begin_event();
      print(R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":{}}}}})", d,
            quoted(fmt::format("GPU {} {}", d, header_.devices[d].first.name), 300));
    }
  }

  void write_instance(const TracedInstance& i) {
    const bool open = i.close_ns == kOpen;
    const std::string& region = rules_.regions()[raw(i.region)].name;
    std::string name = region;
    for (std::size_t k = 0; k < ShapeWords::kCount; ++k)
      if (i.shape.has(k)) name += fmt::format(" {}={}", kShapeKeys[k].name, i.shape.value[k]);
    begin_event();
    print(R"({{"ph":"X","cat":"user_annotation","name":{},"pid":{},"tid":{})", quoted(name, 1000), header_.pid,
          i.os_thread);
    put_times(i.open_ns, open ? std::max(i.open_ns, snapshot_.end_ns) : i.close_ns);
    print(R"(,"args":{{"region":{},"rule":{},"scope":"{}"{}}}}})", quoted(region, 300), raw(i.rule),
          i.kind == InstanceKind::kProcess ? "process" : "thread", open ? R"(,"open":true)" : "");
  }

  /// One track per region, device and quantity: the figure while an instance is at work, 0 in between.
  void write_counters() {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<const TracedWork*>> tracks;
    for (const TracedWork& w : snapshot_.works)
      if (w.flop >= 0 && w.end_ns > w.begin_ns) tracks[{raw(w.region), w.device}].push_back(&w);
    for (auto& [key, works] : tracks) {
      std::sort(works.begin(), works.end(),
                [](const TracedWork* a, const TracedWork* b) { return a->begin_ns < b->begin_ns; });
      const auto& [region, device] = key;
      const Peak none;
      const Peak& peak = device < header_.devices.size() ? header_.devices[device].second : none;
      for (std::size_t i = 0; i < works.size(); ++i) {
        const TracedWork& w = *works[i];
        const double elapsed_s = seconds(w.end_ns - w.begin_ns);
        const double rate = w.flop / elapsed_s;
        const std::optional<double> mfu = peak.flop_per_s ? std::optional(100 * rate / *peak.flop_per_s) : std::nullopt;
        const std::optional<double> mbu = peak.bytes_per_s && w.bytes >= 0
                                              ? std::optional(100 * w.bytes / elapsed_s / *peak.bytes_per_s)
                                              : std::nullopt;
        const std::string& name = rules_.regions()[region].name;
        write_counter(name + " MFU [%]", device, w.begin_ns, mfu);
        write_counter(name + " MBU [%]", device, w.begin_ns, mbu);
        write_counter(name + " TFLOP/s", device, w.begin_ns, rate / 1e12);
        if (i + 1 < works.size() && works[i + 1]->begin_ns <= w.end_ns) continue;
        write_counter(name + " MFU [%]", device, w.end_ns, mfu ? std::optional(0.0) : std::nullopt);
        write_counter(name + " MBU [%]", device, w.end_ns, mbu ? std::optional(0.0) : std::nullopt);
        write_counter(name + " TFLOP/s", device, w.end_ns, 0.0);
      }
    }
  }

  void write_counter(const std::string& name, std::uint32_t device, TimeNs at, std::optional<double> value) {
    if (!value) return;
    begin_event();
    print(R"({{"ph":"C","name":{},"pid":{},"tid":0,"ts":)", quoted(name, 320), header_.pid);
    put(Us{at - snapshot_.origin_ns});
    print(R"(,"args":{{"gpu{}":{:.6g}}}}})", device, *value);
  }

  /// Newest first, so that the oldest are left out when time runs out.
  void write_activities() {
    const LaunchPlaces places(snapshot_);
    std::vector<std::string> names;  // by KernelNameId, quoted
    std::size_t written = 0;
    for (auto at = snapshot_.activities.rbegin(); at != snapshot_.activities.rend(); ++at, ++written) {
      constexpr std::size_t kLookAtClock = 1024;
      if (file_.failed()) return;
      if (written % kLookAtClock == 0 && time_of(CLOCK_MONOTONIC) > deadline_ns_) {
        left_out_ = snapshot_.activities.size() - written;
        return;
      }
      const TracedActivity& a = *at;
      const auto kind = static_cast<ActivityKind>(a.kind);
      const bool kernel = kind == ActivityKind::kKernel;
      const bool copy = kind == ActivityKind::kMemcpy || kind == ActivityKind::kMemset;
      const std::uint32_t name = a.name;
      const std::uint32_t graph = raw(a.graph);
      LaunchPlaces::Place place;
      if (a.first != 0 && places.find(a.owner, a.begin_ns, place)) {
        begin_event();
        put(R"({"ph":"X","cat":"cuda_runtime","name":")");
        put(kind == ActivityKind::kGraph || graph != 0 ? "cudaGraphLaunch"
            : kernel                                   ? "cudaLaunchKernel"
            : kind == ActivityKind::kMemcpy            ? "cudaMemcpyAsync"
                                                       : "cudaMemsetAsync");
        fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE(R"(","pid":{},"tid":{})"), header_.pid,
                       place.thread);
        put_times(place.at, place.at);
        fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE(R"(,"args":{{"correlation":{}}}}})"),
                       raw(a.correlation));
      }
      begin_event();
      if (kernel) {
        if (name >= names.size()) names.resize(name + 1);
        if (names[name].empty()) names[name] = quoted(demangle(std::string(names_.raw_name(KernelNameId{name}))), 4000);
        put(R"({"ph":"X","cat":"kernel","name":)");
        put(names[name]);
      } else if (kind == ActivityKind::kGraph) {
        put(R"({"ph":"X","cat":"kernel","name":"CUDA graph")");
      } else if (kind == ActivityKind::kMemset) {
        put(R"({"ph":"X","cat":"gpu_memset","name":"Memset")");
      } else {
        put(R"({"ph":"X","cat":"gpu_memcpy","name":")");
        put(copy_name(static_cast<CopyDirection>(a.direction)));
        put("\"");
      }
      const std::uint32_t stream = a.stream < snapshot_.streams.size() ? raw(snapshot_.streams[a.stream]) : 0;
      fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE(R"(,"pid":{},"tid":{})"),
                     static_cast<unsigned>(a.device), stream);
      put_times(a.begin_ns, a.begin_ns + static_cast<DurationNs>(a.length_ns));
      fmt::format_to(std::back_inserter(file_.text()),
                     FMT_COMPILE(R"(,"args":{{"device":{},"stream":{},"correlation":{})"),
                     static_cast<unsigned>(a.device), stream, raw(a.correlation));
      if (copy) fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE(R"(,"bytes":{})"), a.extent);
      if (const Grid grid = unpack_grid(a.extent); kernel && grid != Grid{})
        fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE(R"(,"grid":[{},{},{}])"), grid.x, grid.y, grid.z);
      if (graph != 0) fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE(R"(,"graph id":{})"), graph);
      if (kernel && a.product != 0) put_product(static_cast<ProductId>(a.product), a.first_of_product != 0);
      put("}}");
      file_.flush(kPiece);
    }
  }

  void put_product(ProductId id, bool first) {
    const std::optional<Product> product = header_.products != nullptr ? header_.products->find(id) : std::nullopt;
    if (!product) return;
    const bool sized = product->kind == Product::Kind::kSized;
    fmt::format_to(std::back_inserter(file_.text()), FMT_COMPILE(R"(,"product":[{},{},{},{},{},{},"{}","{}",{}])"),
                   sized ? product->m : 0, product->n, product->k, product->batch, product->transpose_a ? 1 : 0,
                   product->transpose_b ? 1 : 0, name(product->operands), name(product->result), first ? 1 : 0);
  }

  static constexpr std::size_t kPiece = 256 << 10;

  TraceFile& file_;
  const TraceSnapshot& snapshot_;
  const TraceHeader& header_;
  const RegionRules& rules_;
  const KernelNames& names_;
  TimeNs deadline_ns_;
  bool any_event_ = false;
  std::size_t left_out_ = 0;
};

}  // namespace

Result<void> write_trace(const std::string& path, const TraceSnapshot& snapshot, const TraceHeader& header,
                         const RegionRules& rules, const KernelNames& names, DurationNs budget_ns) {
  TraceFile file(path);
  if (!file.failed()) RecordingWriter(file, snapshot, header, rules, names, budget_ns).write();
  return file.finish();
}

}  // namespace mfu
