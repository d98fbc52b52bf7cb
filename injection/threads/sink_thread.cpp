#include "injection/threads/sink_thread.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "core/sinks/sink_tensorboard.h"
#include "cuda/nvtx_handler.h"
#include "injection/guards/own_files.h"
#include "injection/guards/own_thread.h"

namespace mfu {
namespace {

/// A line may hold a path or a name of any length.
std::string cut(std::string text) {
  constexpr std::size_t kMost = 1000;
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;  // inside of a character
  text.resize(end);
  return text + "...";
}

}  // namespace

SinkThread::SinkThread(const Config& config, const RegionRules& rules, const KernelNames& names)
    : config_(config), rules_(rules), names_(names) {}

void SinkThread::open(const RunInfo& run) {
  run_begin_ns_ = run.t_ns;
  const double bytes_per_day = config_.run_dir_limit_mb * 1e6;
  if (config_.log.all_ranks || config_.rank == 0) {
    if (config_.log.json)
      json_log_.emplace(config_.log.target, bytes_per_day);
    else
      text_.emplace(config_.log.target, config_.rank, config_.log.all_ranks && config_.world_size > 1,
                    static_cast<std::uint64_t>(config_.log.every), config_.log.components, bytes_per_day);
  }
  if (!config_.run_dir.empty()) file_sinks_.push_back(std::make_unique<JsonlSink>(config_.run_dir, run, bytes_per_day));
  if (!config_.tb_dir.empty())
    file_sinks_.push_back(std::make_unique<TensorboardSink>(config_.tb_dir, run, bytes_per_day));
}

bool SinkThread::start() {
  const bool stream = (text_ || json_log_) && (config_.log.target == "stderr" || config_.log.target == "stdout");
  if (stream && log_thread_.emplace().start()) {
    if (text_) text_->carried_by(&*log_thread_);
    if (json_log_) json_log_->carried_by(&*log_thread_);
  } else {
    log_thread_.reset();
  }
  own_descriptors_ = !stream || log_thread_;
  return start_own_thread(
      "mfu-sink", [](void* self) { static_cast<SinkThread*>(self)->loop(); }, this);
}

// --- from other threads ---------------------------------------------------------------------------------------------

void SinkThread::push(Message&& message) {
  const std::lock_guard lock(mutex_);
  if (messages_.size() >= 2 * kMostWaiting) {
    host_counters().add(Counter::kSinkErrors);
    return;
  }
  messages_.push_back(std::move(message));
}

void SinkThread::say(std::string kind, std::string text, std::optional<Stall> stall) {
  Message m;
  m.event = {utc_now(), std::move(kind), cut(std::move(text)), std::move(stall)};
  push(std::move(m));
}

void SinkThread::announce(RunInfo run) {
  Message m;
  m.kind = Message::Kind::kStart;
  m.run = std::move(run);
  const std::lock_guard lock(mutex_);
  // Events queued before the first start line are written after it.
  messages_.insert(open_ ? messages_.end() : messages_.begin(), std::move(m));
  open_ = true;
}

bool SinkThread::announced() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

void SinkThread::send(WindowSummary&& window) {
  Message m;
  m.kind = Message::Kind::kWindow;
  m.window = std::move(window);
  const std::lock_guard lock(mutex_);
  if (messages_.size() >= kMostWaiting) {
    const auto oldest = std::find_if(messages_.begin(), messages_.end(),
                                     [](const Message& x) { return x.kind == Message::Kind::kWindow; });
    if (oldest != messages_.end()) messages_.erase(oldest);
    host_counters().add(Counter::kWindowsDropped);
  }
  messages_.push_back(std::move(m));
}

void SinkThread::send_trace(std::string path, TraceSnapshot trace, TraceHeader header) {
  Message m;
  m.kind = Message::Kind::kTrace;
  m.event.t_ns = utc_now();
  m.path = std::move(path);
  m.trace = std::move(trace);
  m.trace_header = std::move(header);
  push(std::move(m));
}

void SinkThread::wake() {
  if (announced()) wake_.notify([] {});
}

void SinkThread::close() {
  {
    const std::lock_guard lock(mutex_);
    if (!open_) messages_.clear();
    closed_ = true;
  }
  wake_.notify([] {});
}

bool SinkThread::wait_written(DurationNs patience) {
  return written_wake_.wait(patience, [this] { return written_; });
}

// --- mfu-sink -------------------------------------------------------------------------------------------------------

void SinkThread::loop() {
  // Where it is refused files are opened in the host's table, for the moment of a write.
  if (own_descriptors_) (void)take_own_descriptors();
  bool finished = false;
  while (!finished) {
    wake_.wait(config_.run_dir.empty() ? 3600 * kNsPerSecond : kNsPerSecond / 4, [this] {
      const std::lock_guard lock(mutex_);
      return closed_ || (open_ && !messages_.empty());
    });
    if (!config_.run_dir.empty()) {
      if (!config_.trace.empty() && announced()) (void)trace_.look(config_.run_dir, run_begin_ns_);
      if (so_far_.look(config_.run_dir, run_begin_ns_) && poke_) poke_();
    }
    while (true) {
      Message m;
      {
        const std::lock_guard lock(mutex_);
        if (messages_.empty() || !open_) {
          finished = closed_;
          break;
        }
        m = std::move(messages_.front());
        messages_.pop_front();
      }
      write(m);
      lines_.fetch_add(1, std::memory_order_relaxed);
    }
    cpu_s_.store(thread_cpu_s(), std::memory_order_relaxed);
  }
  constexpr DurationNs kLogPatience = 3 * kSlowdown * kNsPerSecond / 10;
  if (log_thread_) log_thread_->finish(kLogPatience);
  written_wake_.notify([this] { written_ = true; });
}

bool SinkThread::Request::look(const std::string& directory, TimeNs begin) {
  struct ::stat info {};
  if (::stat((directory + "/" + name_).c_str(), &info) != 0) return false;
  const ::timespec& at = info.st_mtim;
  if (at.tv_sec < begin / kNsPerSecond || (at.tv_sec == seen_.tv_sec && at.tv_nsec == seen_.tv_nsec)) return false;
  seen_ = at;
  wanted_.store(true, std::memory_order_relaxed);
  return true;
}

void SinkThread::write_trace_file(const Message& message) {
  // At exit the host is blocked on us: 1 s instead of 30.
  const bool leaving = hurry_.load(std::memory_order_relaxed);
  const Result<void> done = write_trace(message.path, message.trace, message.trace_header, rules_, names_,
                                        leaving ? kSlowdown * kNsPerSecond : 30 * kNsPerSecond);
  if (!done) host_counters().add(Counter::kSinkErrors);
  Message said;
  said.event.t_ns = message.event.t_ns;
  said.event.kind = "trace";
  said.event.message = done ? "the last " + std::to_string(message.trace.activities.size()) + " GPU activities and " +
                                  std::to_string(message.trace.instances.size()) + " ranges are in " + message.path
                            : cut(done.error().message) + "; no trace";
  if (!leaving)
    write(said);
  else if (text_)  // the run directory has its last line
    (void)text_->event(said.event);
}

void SinkThread::write(Message& message) {
  const bool files = same_root();
  if (!files && !std::exchange(other_root_said_, true)) {
    host_counters().add(Counter::kSinkErrors);
    if (text_ && log_thread_)
      (void)text_->event({message.event.t_ns, "sink",
                          "the program has gone into another root directory: nothing is written to files from now on"});
  }
  if (!files && message.kind == Message::Kind::kTrace) return;
  if (message.kind == Message::Kind::kTrace) {
    write_trace_file(message);
    return;
  }
  const auto to = [&](Sink& sink) {
    Result<void> done;
    switch (message.kind) {
      case Message::Kind::kStart:
        done = sink.start(message.run);
        break;
      case Message::Kind::kWindow:
        done = sink.write(message.window);
        break;
      case Message::Kind::kEvent:
        done = sink.event(message.event);
        break;
      case Message::Kind::kTrace:
        break;
    }
    if (done) return;
    host_counters().add(Counter::kSinkErrors);
    // Said once per sink, where it can still be said; the next line is tried again.
    if (std::find(sinks_failed_.begin(), sinks_failed_.end(), sink.name()) != sinks_failed_.end()) return;
    sinks_failed_.emplace_back(sink.name());
    if (text_ && sink.name() != text_->name())
      (void)text_->event({message.event.t_ns, "sink", cut(done.error().message) + "; the program runs on"});
  };
  const bool log = files || log_thread_;  // a stream of the host's is no file of the library's
  if (files)
    for (const std::unique_ptr<Sink>& sink : file_sinks_) to(*sink);
  if (json_log_ && log) to(*json_log_);
  // An inert process logs the reason only, no start line.
  if (text_ && log && !(message.kind == Message::Kind::kStart && message.run.level == "inert")) to(*text_);
  if (files && message.kind == Message::Kind::kWindow) say_notices();
}

/// A window was too long for the budget of an output: every output says so.
void SinkThread::say_notices() {
  const auto each = [this](auto&& visit) {
    for (const std::unique_ptr<Sink>& sink : file_sinks_) visit(*sink);
    if (json_log_) visit(static_cast<Sink&>(*json_log_));
    if (text_) visit(static_cast<Sink&>(*text_));
  };
  each([&](Sink& from) {
    const std::string notice = from.take_notice();
    if (notice.empty()) return;
    const TimeNs now = utc_now();
    each([&](Sink& to) { (void)to.event({now, "limit", notice}); });
  });
}

}  // namespace mfu
