#include "injection/threads/drain_thread.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/families/read_architecture.h"
#include "cuda/kernel_products.h"
#include "cuda/nvtx_handler.h"
#include "injection/guards/allocation.h"
#include "injection/guards/own_thread.h"
#include "injection/interpreter/interpreter.h"

namespace mfu {
namespace {

void pause(DurationNs ns) noexcept {
  const ::timespec t{static_cast<::time_t>(ns / kNsPerSecond), static_cast<long>(ns % kNsPerSecond)};
  ::nanosleep(&t, nullptr);
}

}  // namespace

DrainThread::DrainThread(const DrainParts& parts, RunInfo run, TimeNs started)
    : parts_(parts),
      run_(std::move(run)),
      started_(started),
      devices_(parts.config, parts.names),
      stalls_(parts.config.stall_s),
      health_(run_.cupti_version) {
  if (parts_.session != nullptr) flush_.emplace(*parts_.session, wake_);
  if (parts_.session != nullptr && parts_.session->level() == CuptiLevel::kFull && parts_.config.idle)
    look_.emplace(parts_.attribution, parts_.rule_cache, wake_);
  if (parts_.session != nullptr && parts_.config.energy)
    energy_thread_.emplace(started_, static_cast<DurationNs>(parts_.config.interval_s * 1e9));
  parts_.sink.when_asked([this] { poke(); });
}

bool DrainThread::start() {
  // Where there is no thread to be had, these are not needed.
  if (look_ && !look_->start()) look_.reset();
  if (energy_thread_ && !energy_thread_->start()) energy_thread_.reset();
  return start_own_thread(
             "mfu-drain", [](void* self) { static_cast<DrainThread*>(self)->loop(); }, this) &&
         (!flush_ || flush_->start());
}

void DrainThread::stop() {
  // The host waits for 3 s at most, and the sinks are still to come. Where there is no processor for us, the account of
  // a pile of records takes longer than that.
  account_until_.store(monotonic_ns() + 2 * kSlowdown * kNsPerSecond, std::memory_order_relaxed);
  wake_.notify([this] { stopping_.store(true, std::memory_order_relaxed); });
}

// --- the loop -------------------------------------------------------------------------------------------------------

std::uint64_t DrainThread::progress() const noexcept {
  const ::clockid_t cpu = cpu_clock_.load(std::memory_order_relaxed);
  const std::uint64_t cpu_ms = cpu != 0 ? static_cast<std::uint64_t>(time_of(cpu) / 1'000'000) : 0;
  return progress_.load(std::memory_order_relaxed) + cpu_ms;
}

void DrainThread::loop() {
  ::clockid_t cpu{};
  if (::pthread_getcpuclockid(::pthread_self(), &cpu) == 0) cpu_clock_.store(cpu, std::memory_order_relaxed);
  begin();
  const DurationNs window = account_->ledger().window_ns();
  const DurationNs period = RunAccount::tick_period(window);
  bool idle = false;
  while (!stopping() && !memory_was_refused()) {
    const std::uint64_t completed = parts_.session != nullptr ? parts_.session->completed() : 0;
    DurationNs next = idle ? std::max(period, window) : period;
    wait_for(monotonic_ns() + next, completed);
    if (stopping()) break;
    const std::uint64_t launches = parts_.attribution.launches_seen();
    const std::uint64_t records = records_;
    tick();
    records_flow_ = records != records_;
    idle = !stalls_.waits() && launches == parts_.attribution.launches_seen() && launches == launches_before_ &&
           records == records_;
    launches_before_ = launches;
    if (only_own_threads_left()) exit_as_last_thread();
  }
  finish();
}

void DrainThread::begin() {
  const Config& config = parts_.config;
  if (parts_.session != nullptr) clock_.choose([this] { return parts_.session->timestamp(); });
  anchor_clock();
  RunAccount::Options options;
  options.ledger.origin_ns = clock_.now() - (monotonic_ns() - started_);
  options.ledger.window_ns = static_cast<DurationNs>(config.interval_s * 1e9);
  options.ledger.ranges_only = parts_.session == nullptr;
  options.model = config.flops_model();
  options.workload = config.workload;
  if (parts_.imports != nullptr) options.products = &parts_.attribution.products();
  if (!config.trace.empty()) {
    ring_.emplace(static_cast<DurationNs>(config.trace_seconds * 1e9));
    ring_->set_origin(options.ledger.origin_ns);
    options.observer = &*ring_;
  }
  if (config.detect && parts_.session != nullptr)
    options.detection =
        DetectionOptions{.most_explained = config.explain_detection ? DetectedRegions::kMostExplained : 0};
  options.split_graphs = parts_.session != nullptr && parts_.session->follows_graphs();
  options.program = config.python && parts_.session != nullptr;
  options.by_calls = parts_.session != nullptr && parts_.session->level() == CuptiLevel::kShare;
  account_.emplace(RunAccount::Parts{parts_.rules, parts_.attribution, parts_.names, parts_.contexts, clock_.ticks(),
                                     host_counters()},
                   options, [this](WindowSummary&& w) { emit(std::move(w)); });
  account_->ledger().stop_when(
      [this] { return stopping() && monotonic_ns() > account_until_.load(std::memory_order_relaxed); });
  // The tick clock needs two anchors before it can convert: take the second one 2 ms later.
  pause(2'000'000);
  anchor_clock();
}

/// CUPTI hands over full buffers between ticks too; while they flow, take them often enough for the queue to hold what
/// comes at 10 M records/s.
void DrainThread::wait_for(TimeNs next, std::uint64_t completed) {
  const auto look_waits = [&] {
    return look_ && look_->asks() && (look_->flush() == 0 || flush_->returned(look_->flush()));
  };
  const auto some_completed = [&] { return parts_.session != nullptr && parts_.session->completed() != completed; };
  // The sooner its end is known, the sooner launches are measured again.
  const auto session_ended = [&] {
    return parts_.session != nullptr && parts_.session->ended_sessions() != health_.ends_handled();
  };
  for (bool flowing = records_flow_; !stopping();) {
    const DurationNs left = next - monotonic_ns();
    if (left <= 0 || parts_.sink.so_far().asked() || session_ended() || Interpreter::is_half_full()) return;
    wake_.wait(flowing ? std::min<DurationNs>(left, 20'000'000) : left, [&] {
      return stopping() || parts_.sink.so_far().asked() || session_ended() || Interpreter::is_half_full() ||
             look_waits() || (!flowing && some_completed());
    });
    if (!flowing && some_completed()) {  // it was idle, and windows are due again
      flowing = true;
      next = std::min(next, monotonic_ns() + RunAccount::tick_period(account_->ledger().window_ns()));
    }
    if (flowing) take_records();
    if (look_waits()) answer_look();
    if (is_crowded()) return;
  }
}

/// All is over once CUPTI has been asked for records, and every launch has its own.
void DrainThread::answer_look() {
  if (flush_stuck_ || parts_.session->fatal()) return look_->answer(false, 0, 0, 0);
  if (look_->flush() == 0) return look_->wait_for_flush(flush_->ask(false), flush_->cpu_s());
  const double begun = thread_cpu_s();
  take_records();
  const std::uint64_t launches = parts_.attribution.launches_seen();  // first, so that newer ones are not meant
  const bool over = account_->drain().all_over(clock_.now());
  const TimeNs at = account_->drain().newest_end() - (clock_.now() - monotonic_ns());
  look_->answer(over, launches, at, thread_cpu_s() - begun + flush_->cpu_s() - look_->flush_cpu_s());
}

/// Before the account goes on past them.
void DrainThread::take_looks() {
  if (!look_) return;
  const DurationNs lead = clock_.now() - monotonic_ns();
  for (WorkSpan span; look_->take(span);) {
    span.when.begin_ns += lead;
    span.when.end_ns += lead;
    account_->ledger().add_host_work(span);
  }
  look_->note_gaps(account_->ledger().long_gaps_ns(), monotonic_ns());
}

/// Records that wait for a tick take memory, so a tick comes sooner where many have come since the last one.
bool DrainThread::is_crowded() const {
  constexpr std::uint64_t kManyRecords = 1u << 15;
  constexpr std::size_t kManyInstances = 1u << 12;
  constexpr DurationNs kSoonest = 20'000'000;
  return (records_ - records_at_tick_ > kManyRecords || account_->ledger().live() > live_at_tick_ + kManyInstances) &&
         monotonic_ns() - ticked_at_ > kSoonest;
}

void DrainThread::tick() {
  if (ProgramRegions* program = account_->program(); program != nullptr && parts_.sink.so_far().asked())
    program->decide();
  if (parts_.imports != nullptr) parts_.imports->scan_if_changed();  // modules that were loaded since
  look_for_kernel_products();
  anchor_clock();
  const TimeNs now = clock_.now();  // before the newest launch is looked up, so that what is newer began later
  if (CorrelationId newest{}; parts_.attribution.newest_correlation(newest)) health_.begin_tick(now, newest);
  account_->drain().begin_tick(now);
  ask_for_records();
  take_records();
  announce_new_devices();
  check_health();
  take_program();
  take_looks();
  account_->drain().end_tick(health_.dropped_any(), !flush_ || flush_stuck_ || flush_->idle());
  if (parts_.session != nullptr && !flush_stuck_) {
    const bool records_come = health_.alone() && !health_.dropped_any();
    if (std::optional<RunEvent> event =
            stalls_.look(account_->drain(), parts_.attribution, records_come, records_, look_ ? &*look_ : nullptr)) {
      announce();  // the first work of all may be what does not end
      parts_.sink.say(std::move(event->kind), std::move(event->message), std::move(event->stall));
    }
  }
  records_at_tick_ = records_;
  live_at_tick_ = account_->ledger().live();
  ticked_at_ = monotonic_ns();
  if (flush_ && account_->drain().wants_events() && flush_->idle()) parts_.session->follow_events();
  for (std::string& notice : account_->drain().take_notices()) parts_.sink.say("order", std::move(notice));
  for (std::string& notice : account_->ledger().take_notices()) parts_.sink.say("shape", std::move(notice));
  say_what_is_detected();
  tell_unmatched_names(false);
  for (std::string& line : parts_.rules.take_dropped()) parts_.sink.say("config", std::move(line));
  // A process that only opened a context stays silent until it works.
  if (!announced_ && parts_.session == nullptr && nvtx_ranges_seen()) announce();
  constexpr int kBehind = 3;  // ticks that the account is, at most
  if (parts_.sink.so_far().take(kBehind) && announced_) account_->ledger().emit_so_far();
  if (parts_.sink.trace().take() && announced_ && ring_)
    send_trace(parts_.config.run_dir + "/" + parts_.config.host + "-" + std::to_string(parts_.config.rank) + "-" +
                   std::to_string(run_.pid) + ".trace.json",
               clock_.now());
  parts_.sink.wake();
}

/// By the module that launches them, or by a kernel that ran.
void DrainThread::look_for_kernel_products() {
  if (parts_.imports == nullptr || parts_.session == nullptr || kernel_products_) return;
  kernel_products_ = parts_.imports->saw_kernel_products();
  for (const std::uint32_t end = parts_.names.size(); !kernel_products_ && names_looked_at_ < end; ++names_looked_at_)
    kernel_products_ = may_launch_products(parts_.names.raw_name(KernelNameId{names_looked_at_}));
  if (kernel_products_) parts_.session->follow_kernel_products();
}

void DrainThread::anchor_clock() {
  if (auto notice = clock_.anchor()) parts_.sink.say("clock", std::move(*notice));
}

// --- records --------------------------------------------------------------------------------------------------------

void DrainThread::take_records() {
  // Records may come faster than they are taken, without end. A tick ends all the same, so that windows come, and what
  // waits for the next one stays little. Instances come with them, and take longer than records where there are many:
  // so time bounds it too.
  constexpr std::size_t kAtOnce = 2 * RecordQueue::kBatches;
  constexpr DurationNs kLongest = kNsPerSecond / 10;
  const TimeNs until = cut_.records_until != 0 ? cut_.records_until : monotonic_ns() + kLongest;
  const auto enough = [&] { return monotonic_ns() >= until || (cut_.at == 0 && is_crowded()); };
  for (std::size_t taken = 0; taken < kAtOnce && (taken == 0 || !enough()); ++taken) {
    RecordBatch* batch = parts_.queue.receive();
    if (batch == nullptr) break;
    if (cut_.at != 0 && batch->count != 0) {
      leave_out_later_launches(*batch);
      cut_.later_batches = batch->count == 0 ? cut_.later_batches + 1 : 0;
    }
    // A record's instance opened before its launch, so instances are published first.
    account_->drain().follow_instances();
    if (ProgramRegions* program = account_->program()) program->expect_facts(Interpreter::has_reported());
    clock_.correct(*batch);
    devices_.took(*batch);
    const TimeNs now = clock_.now();
    health_.see(*batch, now);
    account_->drain().expect_until(now);
    account_->drain().record(*batch);
    stalls_.took(*batch, parts_.names, parts_.attribution);
    if (!announced_) announce_new_devices();  // before what else comes in the first tick
    records_ += batch->count;
    parts_.queue.give_back(batch);
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
}

/// One flush per tick. A slow one goes on into the next ticks; one that hangs for 30 s is the last.
void DrainThread::ask_for_records() {
  if (!flush_ || flush_stuck_ || parts_.session->fatal()) return;
  if (flush_->idle()) (void)flush_->ask(false);
  const std::uint64_t wanted = flush_->newest();
  // Take what comes while it comes: the queue is no larger than it must be. Taking counts: where records come faster
  // than they are taken, the flush ends when they no longer do.
  const TimeNs enough = monotonic_ns() + kNsPerSecond;
  while (!stopping() && monotonic_ns() < enough) {
    const bool done = wake_.wait(10'000'000, [&] { return flush_->returned(wanted); });
    take_records();
    if (done) return;
    if (is_crowded()) break;
  }
  if (flush_->returned(wanted) || monotonic_ns() - flush_->since() <= 30 * kNsPerSecond) return;
  flush_stuck_ = true;
  host_counters().add(Counter::kFlushStuck);
  parts_.sink.say("flush",
                  "CUPTI did not return from a flush for 30 s: not asking again; records come with full buffers only");
}

// --- other clients of CUPTI -----------------------------------------------------------------------------------------

CuptiLook DrainThread::look_at_cupti() const {
  const CuptiSession& session = *parts_.session;
  const LaunchAccount account = account_->drain().account();
  CuptiLook seen;
  seen.now = monotonic_ns();
  seen.launches = parts_.attribution.launches_seen();
  seen.without_record = host_counters().get(Counter::kLaunchesExpired);
  seen.settled = account.seen - account.dropped + seen.without_record;
  seen.records = records_;
  seen.unmatched = host_counters().get(Counter::kRecordsUnmatched);
  seen.untimed = host_counters().get(Counter::kRecordsNoTime) + host_counters().get(Counter::kRecordsBadTime);
  seen.dropped = flush_ ? flush_->dropped() : 0;
  seen.buffers = session.completed();
  seen.foreign_buffers = session.foreign();
  seen.refused_calls = session.refused();
  seen.ended_sessions = session.ended_sessions();
  seen.ends_are_seen = session.sees_ends();
  // The driver queues up to 1,024 launches a stream; two busy streams a context, and one context more than we know.
  seen.room = session.buffers().bytes_out() / ActivityBuffers::kShortestRecord +
              std::uint64_t{2048} * (session.live_contexts() + 1);
  return seen;
}

void DrainThread::check_health() {
  if (parts_.session == nullptr) return;
  health_.count_finished(*parts_.session, parts_.attribution, monotonic_ns());
  const CuptiLook seen = look_at_cupti();
  CuptiHealth::Findings found = health_.look(seen);
  if (found.records_are_lost) account_->drain().forget_waiting();
  using Action = ClientWatch::Action;
  if (found.action == Action::kYield || found.action == Action::kReturn)
    account_->ledger().not_measured_from(clock_.now() - (seen.now - found.since));
  if (found.action == Action::kBack || found.action == Action::kReturn) account_->ledger().measured_again(clock_.now());
  if (found.action == Action::kResume) parts_.session->resume();
  say(std::move(found.lines));
  // Below this runtime not every launch makes a driver call that we know: its own calls may show more.
  if (found.launches_are_missed) parts_.session->watch_runtime_calls();
}

void DrainThread::say(std::vector<CuptiHealth::Line>&& lines) {
  for (CuptiHealth::Line& line : lines) parts_.sink.say(line.kind, std::move(line.text));
}

// --- to the sinks ---------------------------------------------------------------------------------------------------

void DrainThread::announce_new_devices() {
  if (!devices_.find(account_->ledger(), clock_.now(), stopping() || parts_.sink.so_far().asked())) return;
  run_.devices = devices_.infos();
  announced_ = false;  // once more, with the new device
  if (!stopping()) announce();
}

void DrainThread::announce() {
  if (std::exchange(announced_, true)) return;
  parts_.sink.announce(run_);
}

void DrainThread::emit(WindowSummary&& window) {
  const CuptiSession* session = parts_.session;
  const double wall = seconds(monotonic_ns() - started_);
  window.self.cpu_s = thread_cpu_s() + (flush_ ? flush_->cpu_s() : 0) + (look_ ? look_->cpu_s() : 0) +
                      (energy_thread_ ? energy_thread_->cpu_s() : 0) + parts_.sink.cpu_s();
  window.self.rss_bytes =
      parts_.attribution.map().resident_bytes() + parts_.attribution.instances().resident_bytes() +
      parts_.queue.resident_bytes() + (session != nullptr ? session->buffers().advertised_bytes() : 0) +
      account_->ledger().held_bytes() + (account_->detected() != nullptr ? account_->detected()->held_bytes() : 0) +
      (ring_ ? ring_->resident_bytes() : 0);
  const SampledCost::Estimate own =
      session != nullptr ? session->callback_seconds(clock_.ticks()) : SampledCost::Estimate{};
  window.self.overhead = wall > 0 ? own.mean / wall : 0;
  if (!window.final_run) devices_.add_clock_ratios(window);
  if (energy_thread_ && !window.so_far) add_energy(window);
  if (session != nullptr) window.trust = health_.trust();
  window.stall = stalls_.now();
  // Notices about instances that ended with the run come before its table.
  if (window.final_run && !window.so_far) {
    for (std::string& notice : account_->ledger().take_notices()) parts_.sink.say("shape", std::move(notice));
    if (const DurationNs left_out = account_->ledger().left_out_ns(); left_out > 0)
      parts_.sink.say("exit", "the account of the last " + std::to_string(left_out / 1'000'000) +
                                  " ms is left out: the process ends, and there was no time to add them up");
  }
  parts_.sink.send(std::move(window));
}

void DrainThread::add_energy(WindowSummary& window) {
  energy_thread_->watch(run_.devices);
  const DurationNs lead = clock_.now() - monotonic_ns();
  const TimeNs end = window.window.end_ns - lead;
  energy_.add(window, [&](std::uint32_t device, TimeNs at) { return energy_thread_->at(device, at - lead); });
  for (RegionSummary& row : window.regions) {
    if (!row.device || row.region != "total" || window.final_run) continue;
    const auto [power, thermal, board] = energy_thread_->throttled(*row.device, end);
    row.clock_power = power;
    row.clock_thermal = thermal;
    row.clock_board = board;
  }
  for (std::string& notice : energy_thread_->take_notices()) parts_.sink.say("energy", std::move(notice));
}

/// Lines go to the thread that may wait for a disk.
void DrainThread::send_trace(std::string path, TimeNs now) {
  TraceHeader header;
  header.host = parts_.config.host;
  header.version = MFU_VERSION;
  header.pid = run_.pid;
  header.rank = parts_.config.rank;
  header.world_size = parts_.config.world_size;
  header.config_json = parts_.config.resolved_json;
  header.devices = devices_.facts();
  if (parts_.imports != nullptr) header.products = &parts_.attribution.products();
  parts_.sink.send_trace(std::move(path), ring_->snapshot(now), std::move(header));
}

// --- exit -----------------------------------------------------------------------------------------------------------

void DrainThread::finish() {
  if (look_) look_->stop();
  if (energy_thread_) energy_thread_->stop();
  take_last_records();
  // A process that never worked on a GPU has nothing to say.
  if (records_ != 0 || parts_.attribution.launches_seen() != 0 || parts_.session == nullptr) announce();
  tell_unmatched_names(true);
  const TimeNs end = clock_.now();
  account_->drain().finish(end);
  if (ring_ && announced_) send_trace(parts_.config.trace, end);
  parts_.sink.close();
}

/// Records on their way get a moment; then all are asked for, with those of work that still runs.
void DrainThread::take_last_records() {
  cut_.known = parts_.attribution.newest_correlation(cut_.newest);
  cut_.at = clock_.now();
  if (!cut_.known) account_->drain().leave_out_unknown_work_after(cut_.at);
  // CUPTI's own flush may take as long as it takes where records move at all; one that hangs is left after this time.
  const TimeNs hung_at = monotonic_ns() + kSlowdown * kNsPerSecond * 3 / 4;
  cut_.records_until = monotonic_ns() + kSlowdown * kNsPerSecond * 3 / 2;  // the rest is dropped, and a line says so
  const auto waiting = [this] { return account_->drain().account().dropped != 0; };
  anchor_clock();
  account_->drain().begin_tick(clock_.now());
  if (flush_) {
    flush_at_exit(false, hung_at);
    for (int i = 0; i < 4 && !flush_stuck_ && waiting(); ++i) {
      pause(10'000'000);
      flush_at_exit(false, hung_at);
    }
    // Without launch callbacks it is unknown what lies in buffers that are not complete.
    if (waiting() || !cut_.known) {
      account_->drain().take_unfinished();
      flush_at_exit(true, hung_at);
    }
  }
  take_records();
  announce_new_devices();
  if (parts_.session != nullptr) say(health_.look_for_loss(look_at_cupti(), true));
  take_program();
  take_looks();
  account_->drain().end_tick(health_.dropped_any());
  if (account_->drain().unfinished())
    parts_.sink.say(
        "exit",
        "the GPU was still at work when the process ended: the account ends with the last kernel that was over");
  for (std::string& line : parts_.rules.take_dropped()) parts_.sink.say("config", std::move(line));
  for (std::string& notice : account_->ledger().take_notices()) parts_.sink.say("shape", std::move(notice));
  say_what_is_detected();
}

/// Takes what the interpreter has reported since the last call.
void DrainThread::take_program() {
  ProgramRegions* const program = account_->program();
  if (program == nullptr) return;
  Interpreter::look_again();
  while (std::optional<InterpreterMessage> message = Interpreter::take_message()) {
    if (message->kind == InterpreterMessage::Kind::kUsed) {
      parts_.sink.say("interpreter", std::move(message->text));
    } else if (message->kind == InterpreterMessage::Kind::kStopped) {
      const std::string line = message->number != 0 ? ", line " + std::to_string(message->number) : "";
      parts_.sink.say("interpreter", "the interpreter is not asked: " + message->text + line);
      program->stop();
    } else if (message->kind == InterpreterMessage::Kind::kModel) {
      take_model(*message);
    }
  }
  for (ProgramFact fact; Interpreter::take(fact);) {
    fact.at = clock_.ticks().to_ns(fact.at);
    program->add_fact(fact);
  }
  if (Interpreter::lost_facts() && !program->stopped()) {
    parts_.sink.say("interpreter", "the interpreter is not asked: it reported more than there was time for");
    program->stop();
  }
  if (program->stopped()) Interpreter::stop();
  for (std::string& notice : program->take_notices()) parts_.sink.say("interpreter", std::move(notice));
}

/// A model's own config, as the program has it, behind the number of the model's parameters; 0: not known.
void DrainThread::take_model(const InterpreterMessage& message) {
  const std::uint32_t number = message.number % InterpreterMessage::kRanks;
  std::uint64_t parameters = 0;
  const char* config = std::from_chars(message.text.data(), message.text.data() + message.text.size(), parameters).ptr;
  Result<Architecture> read = read_model(config, "");
  FlopsOptions options;
  options.parallel.tp = std::max(1u, message.number / InterpreterMessage::kRanks);
  std::optional<FlopsModel> model = read ? std::optional(FlopsModel::make(std::move(*read), options)) : std::nullopt;
  Work work = model ? model->work(Phase::kForward, {1, 128, {}, {}, {}, {}, {}, {}, {}}) : Work{};
  if (work.flop_known && model->spec().vision && !model->spec().is_vision_only())  // a pass names no images
    work.flop_known = false, work.missing = "images";
  const std::uint64_t named = work.flop_known ? count_params(model->spec()).text_total().u64() : 0;
  if (named != 0 && parameters != 0 && (parameters < named - named / 100 || parameters > named + named / 100))
    work.flop_known = false, work.missing = "as many parameters as the model has";
  Interpreter::answer(number, work.flop_known);
  if (work.flop_known) return account_->program()->add_model(number, std::move(*model));
  parts_.sink.say("interpreter",
                  "the config of the program's model does not give its FLOP, its products are counted: " +
                      (model ? std::string("it needs ") + work.missing : read.error().message));
}

void DrainThread::say_what_is_detected() {
  DetectedRegions* const detected = account_->detected();
  if (detected == nullptr) return;
  for (std::string& line : detected->take_explained()) parts_.sink.say("explain", std::move(line));
  for (std::string& notice : detected->take_notices()) parts_.sink.say("detected", std::move(notice));
}

/// Ranges come, GPU work runs, and no rule matches: the names and the missing rule, once.
void DrainThread::tell_unmatched_names(bool at_exit) {
  if (unmatched_told_ || !announced_) return;
  // A program's start has other ranges than its steps: the interpreter names the first of these with the second, and
  // while a compiler works the GPU has hardly any work whose region could be missing.
  const Ledger& ledger = account_->ledger();
  const DurationNs age = monotonic_ns() - started_;
  const bool idle = ledger.busy_ns() < age / 100;
  if (!at_exit && (idle || age < 2 * kNsPerSecond + ledger.window_ns())) return;
  const bool by_rules = !parts_.config.regions.empty();
  if (const ProgramRegions* program = account_->program(); !by_rules && program && program->attributed() != 0) return;
  const UnmatchedNames& seen = parts_.rule_cache.unmatched();
  std::string notice = unmatched_notice(seen, parts_.config.regions);
  if (notice.empty()) notice = no_ranges_notice(nvtx_ranges_seen(), parts_.config.regions);
  unmatched_told_ = !notice.empty() || (seen.any_matched() && !by_rules);
  if (!notice.empty()) parts_.sink.say("ranges_unmatched", std::move(notice));
}

void DrainThread::flush_at_exit(bool everything, TimeNs hung_at) {
  if (flush_stuck_ || parts_.session->fatal()) return;
  const std::uint64_t wanted = flush_->ask(everything);
  while (true) {
    const std::uint64_t before = records_;
    const bool done = wake_.wait(5'000'000, [&] { return flush_->returned(wanted); });
    take_records();
    if (done) return;
    const TimeNs now = monotonic_ns();
    // Threads that go on launching keep a flush going for as long as they do. Once all that comes is theirs, and
    // nothing of the account is waited for, the flush gets a moment to end, and is left.
    if (cut_.later_batches >= kOnlyLater && cut_.known && account_->drain().account().dropped == 0) {
      if (cut_.leave_at == 0) cut_.leave_at = now + kSlowdown * kNsPerSecond / 4;
      if (now >= cut_.leave_at) return;
    }
    // Records may come faster than they are taken: at some time the account ends all the same.
    if (now < hung_at || (records_ != before && now < hung_at + kSlowdown * kNsPerSecond)) continue;
    flush_stuck_ = true;
    host_counters().add(Counter::kFlushStuck);
    return;
  }
}

/// Threads may go on launching while the process ends: those launches are in no account. Without launch callbacks it is
/// the time of the call that separates them from the others.
void DrainThread::leave_out_later_launches(RecordBatch& batch) const noexcept {
  const auto later = [&](const ActivityRecord& record) {
    return is_host_call(record.kind) ? record.begin_ns > cut_.at : cut_.known && newer(record.correlation, cut_.newest);
  };
  const auto end = std::remove_if(batch.records.begin(), batch.records.begin() + batch.count, later);
  batch.count = static_cast<std::uint32_t>(end - batch.records.begin());
}

}  // namespace mfu
