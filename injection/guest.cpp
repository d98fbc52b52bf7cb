#include "injection/guest.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/account/ledger.h"
#include "core/account/metrics.h"
#include "core/attribution/attribution.h"
#include "core/attribution/record_queue.h"
#include "core/base/ticks.h"
#include "core/config/config.h"
#include "core/drain/drain.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"
#include "core/recording/recording_ring.h"
#include "core/recording/recording_writer.h"
#include "core/sinks/sink_jsonl.h"
#include "core/sinks/sink_tensorboard.h"
#include "core/sinks/sink_text.h"
#include "cuda/cupti_session.h"
#include "cuda/device.h"
#include "cuda/host_thread.h"
#include "cuda/nvtx_handler.h"
#include "injection/client_watch.h"
#include "injection/contain.h"
#include "injection/own_thread.h"

namespace mfu {

void adopt_early_process_ranges(const HostLinks& live) noexcept;  // cuda/nvtx_handler.cpp

namespace {

/// How much longer the process's end may take where everything is.
#ifdef __SANITIZE_THREAD__
constexpr DurationNs kSlowdown = 10;
#else
constexpr DurationNs kSlowdown = 1;
#endif

TimeNs clock_ns(::clockid_t clock) noexcept {
  ::timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<TimeNs>(t.tv_sec) * kNsPerSecond + t.tv_nsec;
}

double thread_cpu_s() noexcept { return seconds(clock_ns(CLOCK_THREAD_CPUTIME_ID)); }

/// The first loaded library whose path contains one of these words belongs to a tool that owns the process.
std::string foreign_tool() {
  struct Found {
    std::string name;
  } found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
        for (const auto& [word, tool] :
             {std::pair("libToolsInjection64", "Nsight Systems"),
              std::pair("libsanitizer-collection", "compute-sanitizer"), std::pair("libcudadebugger", "cuda-gdb"),
              std::pair("libnvperf_injection", "Nsight Compute")})
          if (path.find(word) != std::string_view::npos) static_cast<Found*>(out)->name = tool;
        return 0;
      },
      &found);
  return found.name;
}

/// Waits that end early when woken. On CLOCK_MONOTONIC, so that a clock set by hand moves nothing.
class Wakeup {
 public:
  Wakeup() {
    ::pthread_condattr_t attributes;
    ::pthread_condattr_init(&attributes);
    ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    ::pthread_cond_init(&condition_, &attributes);
    ::pthread_condattr_destroy(&attributes);
  }
  /// False when `ns` passed without `ready()`.
  template <typename Ready>
  bool wait(DurationNs ns, Ready&& ready) {
    const TimeNs until = clock_ns(CLOCK_MONOTONIC) + ns;
    const ::timespec deadline{static_cast<::time_t>(until / kNsPerSecond), static_cast<long>(until % kNsPerSecond)};
    ::pthread_mutex_lock(&mutex_);
    bool is_ready = ready();
    while (!is_ready && ::pthread_cond_timedwait(&condition_, &mutex_, &deadline) == 0) is_ready = ready();
    if (!is_ready) is_ready = ready();
    ::pthread_mutex_unlock(&mutex_);
    return is_ready;
  }
  /// Wakes a wait so that it looks again, without a lock: from CUPTI's threads. It may come too early and be lost.
  void poke() noexcept { ::pthread_cond_broadcast(&condition_); }
  template <typename Change>
  void notify(Change&& change) {
    ::pthread_mutex_lock(&mutex_);
    change();
    ::pthread_cond_broadcast(&condition_);
    ::pthread_mutex_unlock(&mutex_);
  }

 private:
  ::pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  ::pthread_cond_t condition_;
};

/// What the sink thread is asked to write.
struct Message {
  enum class Kind { kStart, kWindow, kEvent, kTrace } kind = Kind::kEvent;
  RunInfo run;
  WindowSummary window;
  TraceSnapshot trace;
  TraceHeader trace_header;
  std::string path;  ///< of the trace
  TimeNs t_ns = 0;
  std::string event_kind, text;
};

class Guest {
 public:
  Guest() : config_(load_config([](const char* name) -> const char* { return ::getenv(name); }, environ)) {}

  void start();
  [[nodiscard]] bool disabled() const noexcept { return config_.disabled; }

 private:
  static void on_first_use();
  static void on_buffer();
  static void at_exit();
  static void before_fork_in_child();
  void start_threads();
  void open_cupti_ladder();
  void say(std::string kind, std::string text);

  // [mfu-drain]
  void drain_loop();
  void tick(bool last);
  void anchor_clock();
  void follow_clock_steps();
  void bring_onto_our_clock(RecordBatch& batch) const noexcept;
  void take_records();
  void take_last_records();
  void leave_out_later_launches(RecordBatch& batch) const noexcept;
  void find_devices();
  void emit(WindowSummary&& window);
  void watch_other_clients();
  void count_finished();
  [[nodiscard]] TimeNs cupti_now() const noexcept;
  void announce();
  void send_trace(std::string path, TimeNs now);
  // [mfu-flush]
  void flush_loop();
  // [mfu-sink]
  void sink_loop();
  void write(Message& message);
  void write_trace_file(const Message& message, DurationNs budget_ns);
  void look_for_trace_request();

  Config config_;
  pid_t pid_ = ::getpid();
  TimeNs started_mono_ = 0;

  std::optional<RegionRules> rules_;
  std::optional<RuleCache> range_names_;
  std::optional<Attribution> attribution_;
  std::optional<KernelNames> kernel_names_;
  ContextDevices contexts_;
  std::optional<RecordQueue> queue_;
  TickClock clock_;
  std::optional<Ledger> ledger_;
  std::optional<DetectedRegions> detected_;  ///< MFU_DETECT
  std::optional<Drain> drain_;
  std::optional<RecordingRing> ring_;  ///< MFU_TRACE
  std::vector<std::pair<DeviceFacts, Peak>> traced_devices_;
  std::atomic<bool> trace_wanted_{false};
  ::timespec trace_request_seen_{};  ///< [mfu-sink]
  CuptiSession* session_ = nullptr;  // leaked: callbacks may come until the process is gone
  HostLinks live_;
  std::string level_ = "ranges";
  RunInfo run_;
  std::optional<DType> dtype_;   ///< of the matmul operands, once somebody said
  TimeNs dtype_wait_until_ = 0;  ///< end of the window in which a device came up: until then a matmul kernel may say
  std::vector<Peak> peaks_;      ///< by device
  std::vector<bool> device_known_;
  bool announced_ = false;

  std::atomic<bool> threads_running_{false};
  std::atomic<bool> stopping_{false};
  Wakeup drain_wake_, flush_wake_, sink_wake_, done_wake_;
  std::atomic<std::uint64_t> flush_wanted_{0}, flush_done_{0};
  std::atomic<bool> flush_everything_{false};  ///< the next one hands out what is incomplete too
  TimeNs flush_since_ = 0;
  bool flush_stuck_ = false;
  std::atomic<std::uint64_t> dropped_{0};
  std::uint64_t dropped_taken_ = 0;
  bool untimed_said_ = false;
  std::uint64_t launches_before_ = 0;
  CorrelationId cut_{};  ///< at exit: the newest launch of the account
  bool cut_known_ = false;
  TimeNs cut_ns_ = 0;
  std::uint64_t records_ = 0;
  bool records_flow_ = true;  ///< some came in the last tick
  ClientWatch watch_;
  struct Finished {
    CorrelationId launch;
    std::uint64_t launches;  ///< that were made when it was told
    TimeNs at;
  };
  std::deque<Finished> finished_;
  std::uint64_t finished_without_record_ = 0;
  DurationNs cupti_offset_ = 0;
  DurationNs clock_lead_ = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
  DurationNs clock_step_ = 0, clock_step_before_ = 0;  ///< by how much CLOCK_REALTIME was set on since the start
  bool cupti_clock_direct_ = true;

  std::mutex messages_mutex_;
  std::deque<Message> messages_;
  bool sink_open_ = false;  ///< the start line is among the messages: they may go out
  bool drain_done_ = false;
  bool sink_done_ = false;
  std::atomic<std::uint64_t> progress_{0};  ///< batches taken and lines written: the exit waits while it grows
  std::atomic<double> cpu_drain_{0}, cpu_flush_{0}, cpu_sink_{0};
  std::optional<TextSink> text_;
  std::optional<JsonlSink> jsonl_;
  std::optional<TensorboardSink> tensorboard_;
  std::vector<std::string> sinks_failed_;
};

std::atomic<Guest*> g_guest{nullptr};
std::atomic<bool> g_started{false};

// --- start ----------------------------------------------------------------------------------------------------------

void Guest::say(std::string kind, std::string text) {
  Message m;
  m.kind = Message::Kind::kEvent;
  m.t_ns = clock_ns(CLOCK_REALTIME);
  m.event_kind = std::move(kind);
  m.text = std::move(text);
  const std::lock_guard lock(messages_mutex_);
  messages_.push_back(std::move(m));
}

void Guest::start() {
  started_mono_ = clock_ns(CLOCK_MONOTONIC);
  rules_.emplace(config_.regions, config_.presets, config_.warnings);
  range_names_.emplace(*rules_);
  attribution_.emplace(host_counters());
  kernel_names_.emplace(host_counters());
  queue_.emplace();
  live_ = {&*attribution_, &*rules_, &*range_names_};

  run_.t_ns = clock_ns(CLOCK_REALTIME);
  run_.host = config_.host;
  run_.pid = pid_;
  run_.rank = config_.rank;
  run_.local_rank = config_.local_rank;
  run_.world_size = config_.world_size;
  run_.version = MFU_VERSION;
  run_.config_json = config_.resolved_json;
  if (config_.model) {
    run_.model_json = config_.model->model_json();
    run_.convention = config_.model->convention();
  }
  dtype_ = config_.peak.dtype;
  if (!dtype_ && config_.model) dtype_ = config_.model->dtype();
  if (config_.log_all_ranks || config_.rank == 0)
    text_.emplace(config_.log, config_.rank, config_.log_all_ranks && config_.world_size > 1);
  if (!config_.run_dir.empty()) jsonl_.emplace(config_.run_dir, run_);
  if (!config_.tb_dir.empty()) tensorboard_.emplace(config_.tb_dir, run_);
  for (const std::string& warning : config_.warnings) say("config", warning);
  if (!config_.model)
    say("config",
        "no model config: times and waterfall only; for MFU set MFU_MODEL_CONFIG to a Hugging Face config.json, its "
        "folder or a model id");

  if (const std::string tool = foreign_tool(); !tool.empty()) {
    level_ = "inert";
    say("inert", tool + " is at work in this process: stepping aside for good");
  } else {
    open_cupti_ladder();
  }
  run_.level = level_;
  if (level_ == "inert") {
    host_switches().inert.store(true, std::memory_order_relaxed);
    announce();
    drain_done_ = true;
    start_threads();  // only to say why
    return;
  }
  g_guest.store(this, std::memory_order_release);
  host_switches().live.store(&live_, std::memory_order_release);
  ::pthread_atfork(nullptr, nullptr, before_fork_in_child);
  adopt_early_process_ranges(live_);
  (void)live_thread(live_);  // what this thread has open is the region of whatever other threads launch
  if (session_ == nullptr) start_threads();
}

void Guest::open_cupti_ladder() {
  std::string tried;
  const auto note = [&tried](const std::string& why) { tried += (tried.empty() ? "" : "; ") + why; };
  bool slot_taken = false, no_driver = false;
  for (const CuptiCandidate& candidate : cupti_candidates(config_.cupti_path)) {
    auto api = open_cupti(candidate);
    if (!api) {
      // The system's names are tried one after another; only the first says something new.
      if (candidate.path.find('/') != std::string::npos || tried.empty()) note(api.error().message);
      continue;
    }
    const CuptiLevel level = config_.profiler == ProfilerPolicy::kShare ? CuptiLevel::kShare : CuptiLevel::kFull;
    auto* session =
        new CuptiSession(*api, live_, *kernel_names_, contexts_, *queue_, host_counters(), on_first_use, on_buffer);
    std::string why;
    const CuptiSession::Failure failure = session->start(level, why);
    if (failure == CuptiSession::Failure::kNone) {
      session_ = session;
      level_ = level == CuptiLevel::kFull ? "full" : "share";
      run_.cupti_path = api->path;
      run_.cupti_version = api->version;
      return;
    }
    note(api->path + " (" + cupti_version_text(api->version) + "): " + why);
    if (failure == CuptiSession::Failure::kSlotTaken) {
      slot_taken = true;
      break;
    }
    if (failure == CuptiSession::Failure::kForbidden) {
      level_ = "inert";
      say("inert", "CUPTI may not be used here: " + tried);
      return;
    }
    no_driver = failure == CuptiSession::Failure::kNoDriver;
    // What the host uses is what there is; and a copy that took part of what it was asked stays mapped with it: a
    // second one beside it would be one too many.
    if (candidate.host_mapped || !no_driver) break;
  }
  if (no_driver) {
    level_ = "inert";
    say("inert", "CUPTI finds no driver that it can use: " + tried);
    return;
  }
  level_ = "ranges";
  if (slot_taken)
    say("ranges", "another tool holds CUPTI (" + tried + "): it keeps it; measuring the ranges' times only");
  else
    say("ranges",
        "no CUPTI to work with (" + tried + "): measuring the ranges' times only; set MFU_CUPTI to a libcupti.so");
}

void Guest::on_first_use() {
  if (Guest* guest = g_guest.load(std::memory_order_acquire); guest != nullptr && guest->pid_ == ::getpid())
    guest->start_threads();
}

void Guest::on_buffer() {
  if (Guest* guest = g_guest.load(std::memory_order_acquire)) guest->drain_wake_.poke();
}

void Guest::start_threads() {
  if (threads_running_.exchange(true, std::memory_order_acq_rel)) return;
  g_guest.store(this, std::memory_order_release);
  bool ok = start_own_thread(
      "mfu-sink", [](void* self) { static_cast<Guest*>(self)->sink_loop(); }, this);
  if (!drain_done_) {
    ok = ok && start_own_thread(
                   "mfu-drain", [](void* self) { static_cast<Guest*>(self)->drain_loop(); }, this);
    if (session_ != nullptr)
      ok = ok && start_own_thread(
                     "mfu-flush", [](void* self) { static_cast<Guest*>(self)->flush_loop(); }, this);
  }
  if (!ok) {
    host_switches().inert.store(true, std::memory_order_relaxed);
    return;
  }
  // Registered now, after libcuda's own, so that it runs before theirs.
  std::atexit(at_exit);
}

/// A child of fork has none of our threads, and CUDA cannot be used in it once the parent had it: it stays silent. What
/// it inherited is left as it is.
void Guest::before_fork_in_child() { host_switches().inert.store(true, std::memory_order_relaxed); }

/// The account ends here: what other threads launch while the process goes is not ours to tell, and would keep us from
/// ending for as long as they do. Time spent here is time in which the host's own threads race its end, so it is short:
/// 200 ms where the GPU is still at work, and what CUPTI's own flush takes.
void Guest::at_exit() {
  Guest* guest = g_guest.load(std::memory_order_acquire);
  if (guest == nullptr || guest->pid_ != ::getpid()) return;
  host_switches().closing.store(true, std::memory_order_relaxed);
  host_switches().inert.store(true, std::memory_order_relaxed);
  constexpr DurationNs kPatience = kSlowdown * kNsPerSecond;  // without a line written or a batch of records taken
  constexpr DurationNs kDeadline = 3 * kSlowdown * kNsPerSecond;
  guest->drain_wake_.notify([guest] { guest->stopping_.store(true, std::memory_order_relaxed); });
  const TimeNs deadline = clock_ns(CLOCK_MONOTONIC) + kDeadline;
  for (bool done = false, moves = true; !done && moves && clock_ns(CLOCK_MONOTONIC) < deadline;) {
    const std::uint64_t progress = guest->progress_.load(std::memory_order_relaxed);
    done = guest->done_wake_.wait(kPatience, [guest] { return guest->sink_done_; });
    moves = guest->progress_.load(std::memory_order_relaxed) != progress;
  }
  // Nothing is destroyed: other threads may still be inside callbacks, and the kernel takes it all in a moment.
  host_switches().closing.store(false, std::memory_order_relaxed);
}

// --- mfu-flush ------------------------------------------------------------------------------------------------------

void Guest::flush_loop() {
  CuptiSession::set_own_thread();
  std::uint64_t done = 0;
  while (true) {
    flush_wake_.wait(3600 * kNsPerSecond, [&] { return flush_wanted_.load(std::memory_order_relaxed) != done; });
    const std::uint64_t wanted = flush_wanted_.load(std::memory_order_relaxed);
    if (wanted == done) continue;
    if (flush_everything_.exchange(false, std::memory_order_relaxed))
      session_->flush_everything();
    else
      session_->flush();
    dropped_.fetch_add(session_->take_dropped(), std::memory_order_relaxed);
    done = wanted;
    cpu_flush_.store(thread_cpu_s(), std::memory_order_relaxed);
    drain_wake_.notify([&] { flush_done_.store(done, std::memory_order_relaxed); });
  }
}

// --- mfu-drain ------------------------------------------------------------------------------------------------------

TimeNs Guest::cupti_now() const noexcept {
  // CUPTI's clock on Linux is CLOCK_REALTIME. Read the same clock ourselves instead of asking CUPTI: another client can
  // replace CUPTI's clock by a counter of its own, with another unit.
  if (cupti_clock_direct_) return clock_ns(CLOCK_REALTIME) - clock_step_;
  return clock_ns(CLOCK_MONOTONIC) + cupti_offset_;
}

/// Somebody set the system clock, or the machine slept: windows go on as if nothing had happened.
void Guest::follow_clock_steps() {
  if (!cupti_clock_direct_) return;
  const DurationNs lead = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
  const DurationNs step = lead - clock_lead_;
  clock_lead_ = lead;
  if (std::llabs(step) <= kNsPerSecond) return;
  clock_step_before_ = clock_step_;
  clock_step_ += step;
  host_counters().add(Counter::kClockJumps);
  say("clock", "the system clock was set " + std::to_string(step / kNsPerSecond) +
                   " s on; the window around it is not to be trusted, and t0_ns and t1_ns stay on the clock of before");
}

/// Which clock a record is on, nobody says: it is the one that puts it nearest to now. Kineto gives CUPTI the time
/// stamp counter for a clock, and leaves it there when it is done.
void Guest::bring_onto_our_clock(RecordBatch& batch) const noexcept {
  const TimeNs now = cupti_now() + clock_step_;
  const Ticks ticks = ticks_now();
  const TimeNs between = ticks + (now - ticks) / 2;  // what lies below is nearer to the counter
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    ActivityRecord& record = batch.records[i];
    if (record.begin_ns == 0) continue;
    if ((record.begin_ns < between) == (ticks < now)) {
      record.begin_ns = clock_.to_ns(record.begin_ns);
      if (record.end_ns != 0) record.end_ns = clock_.to_ns(record.end_ns);
      continue;
    }
    if (clock_step_ == 0) continue;
    const DurationNs since = record.begin_ns - now;
    const DurationNs step =
        std::llabs(since) <= std::llabs(since + clock_step_ - clock_step_before_) ? clock_step_ : clock_step_before_;
    record.begin_ns -= step;
    if (record.end_ns != 0) record.end_ns -= step;
  }
}

void Guest::anchor_clock() {
  follow_clock_steps();
  // Of three readings the one with the least time between the two counters.
  Ticks best_width = 0, best_ticks = 0;
  TimeNs best_ns = 0;
  for (int i = 0; i < 3; ++i) {
    const Ticks before = ticks_now();
    const TimeNs ns = cupti_now();
    const Ticks after = ticks_now();
    if (i != 0 && after - before >= best_width) continue;
    best_width = after - before;
    best_ticks = before + best_width / 2;
    best_ns = ns;
  }
  if (!clock_.anchor(best_ticks, best_ns)) {
    host_counters().add(Counter::kClockJumps);
    say("clock", "the system clock was set; the window around it is not to be trusted");
  }
}

void Guest::drain_loop() {
  if (session_ != nullptr && session_->api().get_timestamp != nullptr) {
    std::uint64_t theirs = 0;
    const TimeNs real = clock_ns(CLOCK_REALTIME);
    if (session_->api().get_timestamp(&theirs) == CUPTI_SUCCESS && theirs != 0 &&
        std::llabs(static_cast<TimeNs>(theirs) - real) > kNsPerSecond &&
        std::llabs(static_cast<TimeNs>(theirs) - ticks_now()) > std::llabs(static_cast<TimeNs>(theirs) - real)) {
      cupti_clock_direct_ = false;
      cupti_offset_ = static_cast<TimeNs>(theirs) - clock_ns(CLOCK_MONOTONIC);
    }
  }
  anchor_clock();
  const TimeNs origin = cupti_now() - (clock_ns(CLOCK_MONOTONIC) - started_mono_);
  LedgerOptions options;
  options.origin_ns = origin;
  options.window_ns = std::max<DurationNs>(10'000'000, static_cast<DurationNs>(config_.interval_s * 1e9));
  options.ranges_only = session_ == nullptr;
  ledger_.emplace(*rules_, config_.flops_model(), config_.workload, *kernel_names_, host_counters(), options,
                  [this](WindowSummary&& w) { emit(std::move(w)); });
  if (!config_.trace.empty()) {
    ring_.emplace(static_cast<DurationNs>(config_.trace_seconds * 1e9));
    ring_->set_origin(origin);
    ledger_->observe(&*ring_);
  }
  if (config_.detect && session_ != nullptr) detected_.emplace(*ledger_, *rules_, *kernel_names_, DetectionOptions{});
  drain_.emplace(*attribution_, *ledger_, clock_, contexts_, host_counters(), detected_ ? &*detected_ : nullptr,
                 session_ != nullptr && session_->level() == CuptiLevel::kShare);
  // A second anchor gives the slope; until then there is nothing to convert with.
  const ::timespec moment{0, 2'000'000};
  ::nanosleep(&moment, nullptr);
  anchor_clock();

  const DurationNs period = std::clamp<DurationNs>(options.window_ns / 4, 20'000'000, kNsPerSecond);
  bool idle = false;
  while (!stopping_.load(std::memory_order_relaxed)) {
    // CUPTI hands over full buffers between ticks too; while they flow, take them often enough for the queue to hold
    // what comes at 10 M records/s.
    const TimeNs next = clock_ns(CLOCK_MONOTONIC) + (idle ? std::max(period, options.window_ns) : period);
    const std::uint64_t completed = session_ != nullptr ? session_->completed() : 0;
    for (bool flowing = records_flow_; !stopping_.load(std::memory_order_relaxed);) {
      const DurationNs left = next - clock_ns(CLOCK_MONOTONIC);
      if (left <= 0) break;
      drain_wake_.wait(flowing ? std::min<DurationNs>(left, 20'000'000) : left, [&] {
        return stopping_.load(std::memory_order_relaxed) ||
               (!flowing && session_ != nullptr && session_->completed() != completed);
      });
      flowing = flowing || (session_ != nullptr && session_->completed() != completed);
      if (flowing) take_records();
    }
    if (stopping_.load(std::memory_order_relaxed)) break;
    const std::uint64_t launches = attribution_->launches_seen();
    const std::uint64_t records = records_;
    tick(false);
    records_flow_ = records != records_;
    idle = launches == attribution_->launches_seen() && launches == launches_before_ && records == records_;
    launches_before_ = launches;
    cpu_drain_.store(thread_cpu_s(), std::memory_order_relaxed);
  }
  take_last_records();
  find_devices();
  // A process that never worked on a GPU has nothing to say.
  if (records_ != 0 || attribution_->launches_seen() != 0 || session_ == nullptr) announce();
  const TimeNs end = cupti_now();
  drain_->finish(end);
  if (ring_ && announced_) send_trace(config_.trace, end);
  cpu_drain_.store(thread_cpu_s(), std::memory_order_relaxed);
  {
    const std::lock_guard lock(messages_mutex_);
    if (!sink_open_) messages_.clear();
    drain_done_ = true;
  }
  sink_wake_.notify([] {});
}

/// What is on its way gets a moment; then everything is asked for, with what still runs. [at exit]
void Guest::take_last_records() {
  if (attribution_->newest_correlation(cut_)) cut_known_ = true;
  cut_ns_ = cupti_now();
  const TimeNs begin = clock_ns(CLOCK_MONOTONIC);
  // CUPTI's own flush may take as long as it takes where it moves at all; hanging it holds the process up for so long.
  const TimeNs hung_at = begin + kSlowdown * kNsPerSecond * 3 / 4;
  const auto flush = [&](bool everything) {
    if (session_ == nullptr || flush_stuck_ || session_->fatal()) return;
    flush_everything_.store(everything, std::memory_order_relaxed);
    flush_wake_.notify([this] { flush_wanted_.fetch_add(1, std::memory_order_relaxed); });
    const std::uint64_t wanted = flush_wanted_.load(std::memory_order_relaxed);
    for (bool done = false; !done;) {
      const std::uint64_t before = records_;
      done = drain_wake_.wait(5'000'000, [&] { return flush_done_.load(std::memory_order_relaxed) >= wanted; });
      take_records();
      if (done || clock_ns(CLOCK_MONOTONIC) < hung_at || records_ != before) continue;
      flush_stuck_ = true;
      host_counters().add(Counter::kFlushStuck);
      return;
    }
  };
  tick(true);
  flush(false);
  for (int i = 0; i < 10 && !flush_stuck_ && session_ != nullptr && drain_->account().dropped != 0; ++i) {
    const ::timespec pause{0, 12'000'000};
    ::nanosleep(&pause, nullptr);
    flush(false);
  }
  if (drain_->account().dropped != 0) flush(true);
  tick(true);
}

void Guest::take_records() {
  while (RecordBatch* batch = queue_->receive()) {
    if (stopping_.load(std::memory_order_relaxed)) leave_out_later_launches(*batch);
    // Whoever launched these opened its ranges before: they must be known first.
    drain_->follow_instances();
    bring_onto_our_clock(*batch);
    drain_->record(*batch);
    records_ += batch->count;
    queue_->give_back(batch);
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
}

/// [at exit] Threads may go on launching while the process ends: those launches are in no account.
void Guest::leave_out_later_launches(RecordBatch& batch) const noexcept {
  const auto later = [this](const ActivityRecord& record) {
    return is_host_call(record.kind) ? record.begin_ns > cut_ns_ : cut_known_ && newer(record.correlation, cut_);
  };
  const auto end = std::remove_if(batch.records.begin(), batch.records.begin() + batch.count, later);
  batch.count = static_cast<std::uint32_t>(end - batch.records.begin());
}

/// \param last at exit: the flushes are take_last_records()'s.
void Guest::tick(bool last) {
  anchor_clock();
  drain_->begin_tick(cupti_now());
  if (!last && session_ != nullptr && !flush_stuck_ && !session_->fatal()) {
    if (flush_done_.load(std::memory_order_relaxed) == flush_wanted_.load(std::memory_order_relaxed)) {
      flush_since_ = clock_ns(CLOCK_MONOTONIC);
      flush_wake_.notify([this] { flush_wanted_.fetch_add(1, std::memory_order_relaxed); });
    }
    const std::uint64_t wanted = flush_wanted_.load(std::memory_order_relaxed);
    // Take what comes while it comes: the queue is no larger than it must be.
    for (TimeNs waited = 0; waited < kNsPerSecond && !stopping_.load(std::memory_order_relaxed); waited += 10'000'000) {
      const bool done =
          drain_wake_.wait(10'000'000, [&] { return flush_done_.load(std::memory_order_relaxed) >= wanted; });
      take_records();
      if (done) break;
    }
    if (flush_done_.load(std::memory_order_relaxed) < wanted &&
        clock_ns(CLOCK_MONOTONIC) - flush_since_ > 30 * kNsPerSecond) {
      flush_stuck_ = true;
      host_counters().add(Counter::kFlushStuck);
      say("flush", "CUPTI did not return from a flush for 30 s: not asking again; records come with full buffers only");
    }
  }
  take_records();
  find_devices();
  if (!last) watch_other_clients();
  const std::uint64_t dropped = dropped_.load(std::memory_order_relaxed);
  if (dropped != dropped_taken_) {
    host_counters().add(Counter::kRecordsDropped, dropped - dropped_taken_);
    if (dropped_taken_ == 0) say("dropped", "CUPTI dropped records: figures of that window are lower bounds");
    dropped_taken_ = dropped;
  }
  const std::uint64_t untimed =
      host_counters().get(Counter::kRecordsNoTime) + host_counters().get(Counter::kRecordsBadTime);
  if (!untimed_said_ && untimed > 16 && untimed > records_ / 100) {
    untimed_said_ = true;
    say("untimed",
        std::to_string(untimed * 100 / records_) +
            "% of CUPTI's records have no usable time: device buffers ran out, or another client set CUPTI's clock; "
            "figures are lower bounds");
  }
  drain_->end_tick(dropped != 0);
  for (std::string& notice : ledger_->take_notices()) say("shape", std::move(notice));
  if (detected_)
    for (std::string& notice : detected_->take_notices()) say("detected", std::move(notice));
  // A process that only opened a context stays silent until it works.
  if (!announced_ && (!run_.devices.empty() || (session_ == nullptr && nvtx_ranges_seen()))) announce();
  if (trace_wanted_.exchange(false, std::memory_order_relaxed) && announced_)
    send_trace(config_.run_dir + "/" + config_.host + "-" + std::to_string(config_.rank) + "-" + std::to_string(pid_) +
                   ".trace.json",
               cupti_now());
  if (sink_open_) sink_wake_.notify([] {});
}

/// What is kept goes to the thread that may wait for a disk.
void Guest::send_trace(std::string path, TimeNs now) {
  Message m;
  m.kind = Message::Kind::kTrace;
  m.t_ns = clock_ns(CLOCK_REALTIME);
  m.path = std::move(path);
  m.trace = ring_->snapshot(now);
  m.trace_header.host = config_.host;
  m.trace_header.version = MFU_VERSION;
  m.trace_header.pid = pid_;
  m.trace_header.rank = config_.rank;
  m.trace_header.world_size = config_.world_size;
  m.trace_header.config_json = config_.resolved_json;
  m.trace_header.devices = traced_devices_;
  const std::lock_guard lock(messages_mutex_);
  messages_.push_back(std::move(m));
}

void Guest::watch_other_clients() {
  if (session_ == nullptr) return;
  count_finished();
  ClientWatch::Look seen;
  seen.now = clock_ns(CLOCK_MONOTONIC);
  seen.launches = attribution_->launches_seen();
  seen.records = records_;
  seen.foreign_buffers = session_->foreign();
  seen.refused_calls = session_->refused();
  seen.finished_without_record = finished_without_record_;
  // The driver queues up to 1,024 launches a stream; two busy streams a context, and one context more than we know.
  seen.room = session_->buffers().bytes_out() / ActivityBuffers::kShortestRecord +
              std::uint64_t{2048} * (session_->live_contexts() + 1);
  ClientWatch::Verdict verdict = watch_.look(seen);
  switch (verdict.action) {
    case ClientWatch::Action::kYield:
      ledger_->not_measured_from(cupti_now() - (seen.now - verdict.since));
      break;
    case ClientWatch::Action::kBack:
      ledger_->measured_again(cupti_now());
      break;
    case ClientWatch::Action::kResume:
      session_->resume();
      break;
    case ClientWatch::Action::kSay:
    case ClientWatch::Action::kNothing:
      break;
  }
  if (!verdict.text.empty()) say(verdict.kind, std::move(verdict.text));
}

/// Launches that have finished, as the host's own synchronisation says, and of which no record came although every
/// buffer that could hold it has been filled since.
void Guest::count_finished() {
  std::array<CorrelationId, 16> launches;
  const TimeNs now = clock_ns(CLOCK_MONOTONIC);
  const std::uint64_t seen = attribution_->launches_seen();
  const std::uint32_t taken = session_->take_finished(launches.data(), launches.size());
  for (std::uint32_t i = 0; i < taken; ++i) finished_.push_back({launches[i], seen, now});
  const std::uint64_t room = session_->buffers().bytes_out() / ActivityBuffers::kShortestRecord;
  while (!finished_.empty() && seen - finished_.front().launches > room && now - finished_.front().at > kNsPerSecond) {
    finished_without_record_ += attribution_->map().outstanding(finished_.front().launch);
    finished_.pop_front();
  }
  if (finished_.size() > 1024) finished_.pop_front();
}

void Guest::find_devices() {
  for (std::uint32_t d = 0; d < ledger_->devices(); ++d) {
    if (!ledger_->has_device(d) || (d < device_known_.size() && device_known_[d])) continue;
    if (!dtype_ && !(dtype_ = kernel_names_->matmul_dtype_seen()) && !stopping_.load(std::memory_order_relaxed)) {
      // Nobody said, and no matmul kernel ran yet: the next tick may tell. But the window that goes out needs its peak.
      const TimeNs now = cupti_now();
      const DurationNs window = ledger_->window_ns();
      if (dtype_wait_until_ == 0)
        dtype_wait_until_ = ledger_->origin() + ((now - ledger_->origin()) / window + 1) * window;
      if (now < dtype_wait_until_) return;
    }
    if (device_known_.size() <= d) device_known_.resize(d + 1, false);
    device_known_[d] = true;
    const auto identity = identify_device(d);
    const DeviceFacts facts = identity ? identity->facts : DeviceFacts{};
    const bool model_says = config_.model && config_.model->dtype();
    const Peak peak = find_peak(facts, dtype_.value_or(DType::kBf16), config_.peak);
    if (peaks_.size() <= d) peaks_.resize(d + 1);
    peaks_[d] = peak;
    ledger_->set_peak(d, peak);
    if (traced_devices_.size() <= d) traced_devices_.resize(d + 1);
    traced_devices_[d] = {facts, peak};
    DeviceInfo info;
    info.device = d;
    info.name = facts.name;
    info.uuid = identity ? identity->uuid : "";
    info.peak_flop_per_s = peak.flop_per_s;
    info.peak_bytes_per_s = peak.bytes_per_s;
    info.peak_source = peak.source;
    info.dtype = std::string(name(peak.dtype));
    info.dtype_source = config_.peak.dtype ? "config" : model_says ? "model" : dtype_ ? "kernels" : "assumed";
    info.sparse = peak.sparse;
    run_.devices.push_back(std::move(info));
    if (announced_) announced_ = false;  // once more, with the new device
  }
}

void Guest::announce() {
  if (announced_) return;
  announced_ = true;
  Message m;
  m.kind = Message::Kind::kStart;
  m.run = run_;
  const std::lock_guard lock(messages_mutex_);
  // What was said before belongs after the line that says who is speaking.
  messages_.insert(sink_open_ ? messages_.end() : messages_.begin(), std::move(m));
  sink_open_ = true;
}

void Guest::emit(WindowSummary&& window) {
  window.launches = drain_->account();
  if (detected_) detected_->describe(window);
  const double wall = seconds(clock_ns(CLOCK_MONOTONIC) - started_mono_);
  window.self.cpu_s =
      thread_cpu_s() + cpu_flush_.load(std::memory_order_relaxed) + cpu_sink_.load(std::memory_order_relaxed);
  window.self.rss_bytes = attribution_->map().resident_bytes() + attribution_->instances().resident_bytes() +
                          queue_->resident_bytes() +
                          (session_ != nullptr ? session_->buffers().advertised_bytes() : 0) + ledger_->held_bytes() +
                          (detected_ ? detected_->held_bytes() : 0) + (ring_ ? ring_->resident_bytes() : 0);
  window.self.overhead = wall > 0 ? session_ != nullptr ? session_->callback_seconds(clock_) / wall : 0 : 0;
  if (!window.final_run) {
    for (const DeviceInfo& device : run_.devices) {
      const auto clock = sm_clock_khz(device.uuid);
      if (!clock || device.device >= peaks_.size()) continue;
      for (RegionSummary& region : window.regions)
        if (region.device == device.device) region.clock_ratio = clock_ratio(*clock, peaks_[device.device]);
    }
  }
  for (std::size_t i = 0; i < kCounters; ++i)
    if (const std::uint64_t n = host_counters().get(static_cast<Counter>(i)); n != 0)
      window.counters.emplace_back(std::string(kCounterNames[i]), n);
  Message m;
  m.kind = Message::Kind::kWindow;
  m.window = std::move(window);
  constexpr std::size_t kMostWaiting = 256;
  const std::lock_guard lock(messages_mutex_);
  if (messages_.size() >= kMostWaiting) {
    const auto oldest = std::find_if(messages_.begin(), messages_.end(),
                                     [](const Message& x) { return x.kind == Message::Kind::kWindow; });
    if (oldest != messages_.end()) messages_.erase(oldest);
    host_counters().add(Counter::kWindowsDropped);
  }
  messages_.push_back(std::move(m));
}

// --- mfu-sink -------------------------------------------------------------------------------------------------------

void Guest::sink_loop() {
  bool finished = false;
  const bool asked_for_traces = !config_.trace.empty() && !config_.run_dir.empty();
  while (!finished) {
    sink_wake_.wait(asked_for_traces ? kNsPerSecond : 3600 * kNsPerSecond, [this] {
      const std::lock_guard lock(messages_mutex_);
      return drain_done_ || (sink_open_ && !messages_.empty());
    });
    if (asked_for_traces) look_for_trace_request();
    while (true) {
      Message m;
      {
        const std::lock_guard lock(messages_mutex_);
        if (messages_.empty() || !sink_open_) {
          finished = drain_done_;
          break;
        }
        m = std::move(messages_.front());
        messages_.pop_front();
      }
      write(m);
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
    cpu_sink_.store(thread_cpu_s(), std::memory_order_relaxed);
  }
  done_wake_.notify([this] { sink_done_ = true; });
}

/// Somebody touched `trace` in the run directory: every process of the run writes what it keeps.
void Guest::look_for_trace_request() {
  struct ::stat info {};
  if (::stat((config_.run_dir + "/trace").c_str(), &info) != 0) return;
  const bool before =
      info.st_mtim.tv_sec < run_.t_ns / kNsPerSecond ||
      (info.st_mtim.tv_sec == trace_request_seen_.tv_sec && info.st_mtim.tv_nsec == trace_request_seen_.tv_nsec);
  if (before) return;
  trace_request_seen_ = info.st_mtim;
  trace_wanted_.store(true, std::memory_order_relaxed);
}

void Guest::write_trace_file(const Message& message, DurationNs budget_ns) {
  const Result<void> done =
      write_trace(message.path, message.trace, message.trace_header, *rules_, *kernel_names_, budget_ns);
  if (!done) host_counters().add(Counter::kSinkErrors);
  Message said;
  said.t_ns = message.t_ns;
  said.event_kind = "trace";
  said.text = done ? "the last " + std::to_string(message.trace.activities.size()) + " GPU activities and " +
                         std::to_string(message.trace.instances.size()) + " ranges are in " + message.path
                   : done.error().message + "; no trace";
  if (!stopping_.load(std::memory_order_relaxed))
    write(said);
  else if (!done && text_)  // the run directory has its last line
    (void)text_->event(said.t_ns, said.event_kind, said.text);
}

void Guest::write(Message& message) {
  if (message.kind == Message::Kind::kTrace) {
    // At the end the process waits.
    write_trace_file(message, stopping_.load(std::memory_order_relaxed) ? kSlowdown * kNsPerSecond : 30 * kNsPerSecond);
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
        done = sink.event(message.t_ns, message.event_kind, message.text);
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
      (void)text_->event(message.t_ns, "sink", done.error().message + "; the program runs on");
  };
  if (jsonl_) to(*jsonl_);
  if (tensorboard_) to(*tensorboard_);
  // Of a process that steps aside the log says why, and nothing else.
  if (text_ && !(message.kind == Message::Kind::kStart && message.run.level == "inert")) to(*text_);
}

}  // namespace

void Runtime::start() {
  if (g_started.exchange(true, std::memory_order_acq_rel) || host_switches().inert.load(std::memory_order_relaxed))
    return;
  auto* guest = new Guest;  // never destroyed
  if (guest->disabled()) {
    host_switches().inert.store(true, std::memory_order_relaxed);
    return;
  }
  guest->start();
}

void Runtime::start_late() noexcept {
  // Without a driver in the process there is nothing to be late for; and a host that is about to fork keeps one thread.
  if (started() || !driver_mapped()) return;
  // On a thread of ours: the host's thread is inside an NVTX call, and this may open a library.
  (void)start_own_thread(
      "mfu-start",
      [](void*) {
        if (cuda_initialised()) Runtime::start();
      },
      nullptr);
}

bool Runtime::started() noexcept { return g_started.load(std::memory_order_acquire); }

}  // namespace mfu
