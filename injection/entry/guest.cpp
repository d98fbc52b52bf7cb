#include "injection/entry/guest.h"
#include "core/families/architecture_json.h"

#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>

#include "core/attribution/attribution.h"
#include "core/attribution/record_queue.h"
#include "core/base/build_info.h"
#include "core/base/environment.h"
#include "core/base/ticks.h"
#include "core/base/zeroed_array.h"
#include "core/config/config.h"
#include "core/config/host_command.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"
#include "cuda/blas/import_patcher.h"
#include "cuda/coexistence.h"
#include "cuda/device.h"
#include "cuda/early_ranges.h"
#include "cuda/host_thread.h"
#include "cuda/nvtx_handler.h"
#include "injection/entry/cupti_ladder.h"
#include "injection/entry/foreign_tools.h"
#include "injection/entry/host_calls.h"
#include "injection/entry/late_start.h"
#include "injection/guards/contain.h"
#include "injection/guards/own_thread.h"
#include "injection/interpreter/interpreter.h"
#include "injection/threads/drain_thread.h"
#include "injection/threads/sink_thread.h"
#include "injection/threads/wakeup.h"

namespace mfu {
namespace {

/// Another library gets what the program says through NVTX; empty: none does.
std::string taken_ranges(const EnvironmentCopy& environment) {
  const char* library = environment.find("NVTX_INJECTION64_PATH");
  if (library == nullptr || *library == '\0' || std::strstr(library, "libmfuinject") != nullptr) return "";
  return "NVTX_INJECTION64_PATH is " + std::string(library) +
         ": that library gets the program's ranges, and none come here";
}

class Parts {
 public:
  explicit Parts(const EnvironmentCopy& environment)
      : config_(load_config([&](const char* name) { return environment.find(name); }, environment.block())),
        taken_ranges_(taken_ranges(environment)),
        mps_(uses_mps(environment)) {}
  [[nodiscard]] bool disabled() const noexcept { return config_.disabled; }
  void start(const LateStart* late);

 private:
  static void on_first_use();
  static void on_buffer();
  static void before_others_register() noexcept;
  static void at_exit() noexcept;
  static void in_child_after_fork();
  [[nodiscard]] RunInfo describe_run() const;
  void start_threads();

  Config config_;
  std::string taken_ranges_;
  bool mps_;
  const pid_t pid_ = ::getpid();
  const TimeNs started_ = monotonic_ns();

  std::optional<RegionRules> rules_;
  std::optional<RuleCache> rule_cache_;
  std::optional<Attribution> attribution_;
  std::optional<KernelNames> kernel_names_;
  ContextDevices contexts_;
  std::optional<RecordQueue> queue_;
  HostLinks live_;
  std::optional<ImportPatcher> imports_;  ///< none where calls to cuBLAS are not looked at
  CuptiSession* session_ = nullptr;
  std::optional<SinkThread> sink_;
  std::optional<DrainThread> drain_;  ///< none where the process is inert
  std::atomic<bool> threads_running_{false};
  std::atomic<bool> ended_{false};
};

std::atomic<Parts*> g_parts{nullptr};
std::atomic<bool> g_started{false};

// --- start ----------------------------------------------------------------------------------------------------------

RunInfo Parts::describe_run() const {
  RunInfo run;
  run.t_ns = utc_now();
  run.host = config_.host;
  run.pid = pid_;
  run.rank = config_.rank;
  run.local_rank = config_.local_rank;
  run.world_size = config_.world_size;
  run.began_ns = host_began_ns();
  run.job_id = config_.job_id;
  run.restart = config_.restart;
  run.version = MFU_VERSION;
  run.commit = build_commit();
  run.build = build_kind();
  run.command = host_command();
  run.config_json = config_.resolved_json;
  run.trace = config_.trace;
  if (config_.model) {
    run.model_json = model_json(config_.model->spec());
    run.convention = config_.model->convention();
  }
  return run;
}

/// Whether there are addresses for the tables that callbacks write to, with some left for the host.
bool has_room_for_tables() noexcept {
  constexpr std::size_t kTables = std::size_t{64} << 20;  // of all, with what allocators ask for around them
  // glibc gives each thread that allocates 64 MiB of them while there are any, and takes twice as many for a moment:
  // the library's six, and the driver's.
  constexpr std::size_t kArenas = std::size_t{9 * 64} << 20;
  constexpr std::size_t kLeft = std::size_t{16} << 20;  // a library that cannot get thread-local data ends its host
  void* room = detail::map_zeroed(kTables + kArenas + kLeft);
  if (room == nullptr) return false;
  ::munmap(room, kTables + kArenas + kLeft);
  return true;
}

/// \param late see start_guest
void Parts::start(const LateStart* late) {
  if (!has_room_for_tables()) throw std::bad_alloc();  // inert, as with any other memory that is refused
  rules_.emplace(config_.regions, config_.presets, config_.warnings, config_.layers);
  rule_cache_.emplace(*rules_);
  attribution_.emplace(host_counters());
  kernel_names_.emplace(host_counters());
  queue_.emplace();
  if (array_was_refused()) throw std::bad_alloc();  // before any callback can reach a table that is not there
  live_ = {&*attribution_, &*rules_, &*rule_cache_};
  sink_.emplace(config_, *rules_, *kernel_names_);
  RunInfo run = describe_run();
  sink_->open(run);
  for (const std::string& warning : config_.warnings) sink_->say("config", warning);
  if (!config_.model)
    sink_->say("config",
               std::string("no model config: ") +
                   (config_.python ? "MFU by what a PyTorch program's interpreter reports, else " : "") +
                   (config_.executed ? "HFU, and MFU from below, as far as calls to cuBLAS are seen" : "times alone") +
                   "; MFU_MODEL_CONFIG names a Hugging Face config.json, its folder or a model id");

  if (!taken_ranges_.empty()) sink_->say("ranges_taken", taken_ranges_);

  CuptiRung rung;
  if (const std::string tool = foreign_tool(); !tool.empty()) {
    rung.level = rung.event_kind = coexistence_with(OtherProfiler::kForeignTool).level;
    rung.text = tool + " is at work in this process: stepping aside for good";
  } else {
    rung = climb_cupti_ladder(
        config_, {live_, *kernel_names_, contexts_, *queue_, host_counters(), on_first_use, on_buffer, mps_});
  }
  run.level = rung.level;
  run.cupti_path = rung.path;
  run.cupti_version = rung.version;
  if (rung.no_driver && rung.level == "inert" && late == nullptr) {
    const int result = nested_init_result();
    if (result == kNoDevice) {  // a login node, a data worker: nothing to measure, nothing to say
      host_switches().inert.store(true, std::memory_order_relaxed);
      return;
    }
    if (result != 0) rung.text = "nothing is measured: " + init_error_text(result);
  }
  if (!rung.text.empty()) sink_->say(rung.event_kind, std::move(rung.text));
  if (run.level == "inert") {
    host_switches().inert.store(true, std::memory_order_relaxed);
    sink_->announce(std::move(run));
    sink_->close();
    start_threads();  // only to say why
    return;
  }
  // Only with callbacks a launch is known while its library call lasts.
  if (config_.executed && run.level == "full") {
    imports_.emplace();
    rung.session->follow_products();
  }
  if (rung.session != nullptr) load_nvml();
  session_ = rung.session;
  drain_.emplace(DrainParts{config_, *rules_, *rule_cache_, *attribution_, *kernel_names_, contexts_, *queue_,
                            rung.session, *sink_, imports_ ? &*imports_ : nullptr},
                 std::move(run), started_);
  g_parts.store(this, std::memory_order_release);
  // The range that waits for a late start opens after this moment.
  if (late != nullptr) live_.ready = ticks_now();
  host_switches().live.store(&live_, std::memory_order_seq_cst);
  if (late != nullptr && late->was_left())
    sink_->say("late_start",
               "the program used CUDA before mfuinject was ready, and did not wait: "
               "ranges open by then are not counted");
  if (imports_) {
    imports_->scan_if_changed();
    if (imports_->saw_kernel_products()) rung.session->follow_kernel_products();
  }
  if (config_.executed && session_ != nullptr)
    call_before_others_register(before_others_register,
                                reinterpret_cast<RegisterBuffers>(session_->api().register_callbacks));
  ::pthread_atfork(nullptr, nullptr, in_child_after_fork);
  adopt_early_process_ranges(live_);
  (void)live_thread(live_);  // launches of other threads belong to the region that this thread has open
  if (rung.session == nullptr) start_threads();
  if (config_.python && rung.level == "full") Interpreter::enter(config_.layers, on_buffer);
}

/// [host thread, inside a callback] There is a context or a record: from now on there is something to measure.
void Parts::on_first_use() {
  const CancellationOff off;
  if (Parts* parts = g_parts.load(std::memory_order_acquire); parts != nullptr && parts->pid_ == ::getpid())
    parts->start_threads();
}

/// [host thread] torch.profiler is about to take CUPTI's records.
void Parts::before_others_register() noexcept {
  const CancellationOff off;
  Parts* parts = g_parts.load(std::memory_order_acquire);
  if (parts == nullptr || parts->pid_ != ::getpid() || host_switches().inert.load(std::memory_order_relaxed)) return;
  parts->session_->make_room();
  if (parts->drain_) parts->drain_->watch_for_end();
}

/// [CUPTI's threads]
void Parts::on_buffer() {
  if (Parts* parts = g_parts.load(std::memory_order_acquire)) parts->drain_->poke();
}

/// Threads are started as late as can be: a host that forks workers before it uses the GPU must find itself with one
/// thread, as without us.
void Parts::start_threads() {
  if (threads_running_.exchange(true, std::memory_order_acq_rel)) return;
  g_parts.store(this, std::memory_order_release);
  if (!sink_->start() || (drain_ && !drain_->start())) {
    host_switches().inert.store(true, std::memory_order_relaxed);
    return;
  }
  // Registered after libcuda's own, so that it runs before: CUPTI must not be asked once the driver is gone.
  std::atexit(at_exit);
  // A forked child of Python's multiprocessing runs no such handler.
  if (imports_) call_before_python_exits(at_exit);
}

// --- fork -----------------------------------------------------------------------------------------------------------

/// A child of fork has none of our threads, and their locks are in the state that they had; CUDA cannot be used in it
/// once the parent had it. So it takes no lock, frees nothing and stays silent: one store, and every entry returns at
/// once. It leaves alone all that it inherited. No handler runs in the parent: nothing must be brought to rest for
/// a fork, and taking our locks there could hold the host up.
void Parts::in_child_after_fork() { host_switches().inert.store(true, std::memory_order_relaxed); }

// --- exit -----------------------------------------------------------------------------------------------------------

/// The account ends here: launches of other threads while the process ends are not accounted for, and would keep us
/// from ending for as long as they do. Time spent here is time in which the host's own threads race its end (CPython
/// ends a thread that asks for the GIL now, which C++ frames do not survive), so it is short: 40 ms where the GPU is
/// still at work, and what CUPTI's own flush takes.
///
/// The exiting thread holds none of our locks, and may hold any of the host's: so our threads, which never take one of
/// the host's, cannot deadlock with it. They are not joined. A thread that hangs stays where it is.
void Parts::at_exit() noexcept {
  const CancellationOff off;
  Parts* parts = g_parts.load(std::memory_order_acquire);
  if (parts == nullptr || parts->pid_ != ::getpid() || parts->ended_.exchange(true)) return;
  host_switches().closing.store(true, std::memory_order_relaxed);
  host_switches().inert.store(true, std::memory_order_relaxed);
  constexpr DurationNs kPatience = kSlowdown * kNsPerSecond;  // without a line written or a batch of records taken
  constexpr DurationNs kDeadline = 3 * kSlowdown * kNsPerSecond;
  const auto progress = [parts] { return parts->sink_->lines() + (parts->drain_ ? parts->drain_->progress() : 0); };
  parts->sink_->hurry();
  if (parts->drain_) parts->drain_->stop();
  const TimeNs deadline = monotonic_ns() + kDeadline;
  for (bool done = false, moves = true; !done && moves && monotonic_ns() < deadline;) {
    const std::uint64_t before = progress();
    done = parts->sink_->wait_written(kPatience);
    moves = progress() != before;
  }
  // Nothing is destroyed: other threads may still be inside callbacks, and the kernel takes it all in a moment.
  host_switches().closing.store(false, std::memory_order_relaxed);
}

/// \param late the host's thread that waits for the start; nullptr: it is inside cuInit.
void start_guest(const LateStart* late) {
  if (g_started.exchange(true, std::memory_order_acq_rel) || host_switches().inert.load(std::memory_order_relaxed))
    return;
  auto* parts = new Parts(EnvironmentCopy());  // never destroyed
  if (parts->disabled()) {
    host_switches().inert.store(true, std::memory_order_relaxed);
    return;
  }
  parts->start(late);
}

}  // namespace

void Guest::start() { start_guest(nullptr); }

void Guest::start_late() noexcept {
  const CancellationOff off;
  // Without a driver in the process there is nothing to be late for; and a host that is about to fork keeps one thread.
  if (started() || !driver_mapped()) return;
  // On a thread apart: the host's thread is inside an NVTX call and may hold locks, and this opens a library.
  // The range that is being opened waits for it all the same: work before the end of the start would not be
  // measured. But not for long: a host is not held up by what is ours to do.
  static LateStart late;
  const bool runs = start_own_thread(
      "mfu-start",
      [](void*) {
        struct End {
          ~End() { late.end(); }
        } const end;
        late.begin();
        if (cuda_initialised()) start_guest(&late);
      },
      nullptr);
  if (runs) (void)late.await();
}

bool Guest::started() noexcept { return g_started.load(std::memory_order_acquire); }

}  // namespace mfu
