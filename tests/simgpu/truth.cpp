// SIMGPU_TRACE: the true events of the simulated device as JSON lines, for tests to compare with.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <mutex>

#include "tools/simgpu/driver/engine.h"

namespace mfu::sim {
namespace {

struct TruthLine {
  Activity activity;
  const char* api = "";
  std::uint32_t thread = 0;
  std::int64_t launch_ns = 0;
  Fate fate = Fate::kNone;
};

struct LaunchLine {
  const char* api;
  std::uint32_t correlation, thread;
  std::int64_t t_ns;
  CUresult result;
  bool capturing;
};

struct Log {
  std::mutex mutex;
  std::deque<TruthLine> activities;  ///< those not yet written; the first one has index `first`
  std::uint64_t first = 0;
  std::deque<LaunchLine> launches;
  pid_t pid = getpid();
};

/// Leaked: threads of the program may still launch while the process exits.
Log& log() {
  static Log* const instance = new Log;
  return *instance;
}

bool tracing() { return !settings().trace.empty(); }

void append_quoted(std::string& out, const char* text) {
  out += '"';
  for (const char* c = text == nullptr ? "" : text; *c != '\0'; ++c) {
    if (*c == '"' || *c == '\\') out += '\\';
    out += *c;
  }
  out += '"';
}

constexpr const char* kKindNames[] = {"kernel", "memcpy", "memset", "graph"};
constexpr const char* kFateNames[] = {"none",   "unwanted", "delivered", "foreign",   "dropped",
                                      "zeroed", "negative", "truncated", "incomplete"};

void append_line(std::string& out, const TruthLine& line, long pid) {
  const Activity& a = line.activity;
  char text[512];
  const bool delivered = line.fate == Fate::kDelivered || line.fate == Fate::kZeroed || line.fate == Fate::kNegative;
  std::snprintf(
      text, sizeof text,
      "{\"type\":\"activity\",\"pid\":%ld,\"kind\":\"%s\",\"begin\":%lld,\"end\":%lld,\"device\":%u,\"context\":%u,"
      "\"stream\":%u,\"correlation\":%u,\"graph_id\":%u,\"graph_node_id\":%llu,\"bytes\":%llu,"
      "\"grid\":[%u,%u,%u],\"thread\":%u,\"launch_ns\":%lld,\"delivered\":%s,\"fate\":\"%s\",\"api\":\"%s\",\"name\":",
      pid, kKindNames[static_cast<int>(a.kind)], static_cast<long long>(a.begin_ns), static_cast<long long>(a.end_ns),
      a.device, a.context, a.stream, a.correlation, a.graph_id, static_cast<unsigned long long>(a.graph_node_id),
      static_cast<unsigned long long>(a.bytes), a.grid[0], a.grid[1], a.grid[2], line.thread,
      static_cast<long long>(line.launch_ns), delivered ? "true" : "false", kFateNames[static_cast<int>(line.fate)],
      line.api);
  out += text;
  append_quoted(out, a.name);
  out += "}\n";
}

void append_line(std::string& out, const LaunchLine& line, long pid) {
  char text[256];
  std::snprintf(
      text, sizeof text,
      "{\"type\":\"launch\",\"pid\":%ld,\"correlation\":%u,\"api\":\"%s\",\"thread\":%u,\"t_ns\":%lld,\"result\":%d,"
      "\"capturing\":%s}\n",
      pid, line.correlation, line.api, line.thread, static_cast<long long>(line.t_ns), line.result,
      line.capturing ? "true" : "false");
  out += text;
}

void write_all(const std::string& text) {
  const int fd = open(settings().trace.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  close(fd);
}

/// Writes what is settled: launches, and activities up to the first whose record may still be delivered.
void write_out(bool everything) {
  Log& l = log();
  std::string text;
  {
    const std::lock_guard lock(l.mutex);
    if (l.pid != getpid()) return;  // a forked child: the parent writes its own truth
    for (const LaunchLine& line : l.launches) append_line(text, line, l.pid);
    l.launches.clear();
    while (!l.activities.empty() && (everything || l.activities.front().fate != Fate::kNone)) {
      append_line(text, l.activities.front(), l.pid);
      l.activities.pop_front();
      ++l.first;
    }
    if (everything) {
      const char* names[] = {"api", "resource", "requested", "completed"};
      for (int i = 0; i < kCostCount; ++i) {
        const CallbackCost& cost = driver_interface()->costs[i];
        char line[200];
        std::snprintf(
            line, sizeof line,
            "{\"type\":\"callbacks\",\"pid\":%ld,\"which\":\"%s\",\"count\":%llu,\"total_ns\":%llu,\"max_ns\":%llu}\n",
            static_cast<long>(l.pid), names[i], static_cast<unsigned long long>(cost.count.load()),
            static_cast<unsigned long long>(cost.total_ns.load()), static_cast<unsigned long long>(cost.max_ns.load()));
        text += line;
      }
    }
  }
  if (!text.empty()) write_all(text);
}

[[gnu::destructor]] void write_at_exit() {
  if (driver_usable() && tracing()) write_out(true);  // not in a forked child: its copy of the lock may be held
}

}  // namespace

std::uint64_t truth_activity(const Activity& activity, Fate fate) {
  if (!tracing()) return Activity::kNoTruth;
  Log& l = log();
  std::uint64_t index = 0;
  bool crowded = false;
  {
    const std::lock_guard lock(l.mutex);
    l.activities.push_back({activity, current_call().api, thread_id(), now_ns(), fate});
    index = l.first + l.activities.size() - 1;
    // Without a client nothing is flushed: write settled events now and then.
    constexpr std::size_t kMany = 1 << 16;
    crowded = l.activities.size() % kMany == 0 && l.activities.front().fate != Fate::kNone;
  }
  if (crowded) write_out(false);
  return index;
}

void truth_launch(const char* api, std::uint32_t correlation, CUresult result, bool capturing) {
  if (!tracing()) return;
  Log& l = log();
  const std::lock_guard lock(l.mutex);
  l.launches.push_back({api, correlation, thread_id(), now_ns(), result, capturing});
}

void truth_fate(std::uint64_t index, Fate fate) {
  if (index == Activity::kNoTruth || !tracing()) return;
  Log& l = log();
  const std::lock_guard lock(l.mutex);
  if (index >= l.first && index - l.first < l.activities.size()) l.activities[index - l.first].fate = fate;
}

void truth_flush() {
  if (tracing()) write_out(false);
}

}  // namespace mfu::sim
