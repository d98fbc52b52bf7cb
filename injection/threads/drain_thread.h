// The thread that turns records into windows: once per tick it asks CUPTI, attributes, accounts and hands over.
#pragma once

#include <atomic>
#include <limits>
#include <optional>
#include <string>

#include "core/attribution/attribution.h"
#include "core/attribution/context_devices.h"
#include "core/attribution/record_queue.h"
#include "core/config/config.h"
#include "core/drain/run_account.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/rule_cache.h"
#include "core/recording/recording_ring.h"
#include "cuda/blas/import_patcher.h"
#include "cuda/cupti_session.h"
#include "injection/interpreter/interpreter.h"
#include "injection/threads/cupti_health.h"
#include "injection/threads/energy_thread.h"
#include "injection/threads/flush_thread.h"
#include "injection/threads/host_clock.h"
#include "injection/threads/look_thread.h"
#include "injection/threads/run_devices.h"
#include "injection/threads/sink_thread.h"
#include "injection/threads/stalls.h"

namespace mfu {

/// Parts that the drain works on. All of them outlive the process's last callback.
struct DrainParts {
  const Config& config;
  RegionRules& rules;
  const RuleCache& rule_cache;
  Attribution& attribution;
  KernelNames& names;
  const ContextDevices& contexts;
  RecordQueue& queue;
  CuptiSession* session;  ///< nullptr: ranges alone
  SinkThread& sink;
  ImportPatcher* imports;  ///< nullptr: calls to cuBLAS are not looked at
};

/// [mfu-drain] runs loop(); all members without a tag are its own. Nothing here waits for CUPTI or a disk: the flush
/// thread does the one, the sink thread the other, and both may hang for good.
class DrainThread {
 public:
  /// \param started CLOCK_MONOTONIC when the library came up: where the run begins [ns].
  DrainThread(const DrainParts& parts, RunInfo run, TimeNs started);
  /// Starts this thread and, where there is CUPTI, the flush thread.
  [[nodiscard]] bool start();

  /// [CUPTI's threads] A buffer was decoded. No lock.
  void poke() noexcept { wake_.poke(); }
  /// [host thread] Another client of CUPTI is about to register.
  void watch_for_end() noexcept {
    if (flush_) flush_->watch_for_end();
  }
  /// [exiting thread] The run is over: take what is left, close the account, and end.
  void stop();
  /// [any thread] Batches taken so far, and ms of CPU that the thread had: while it grows, an exit waits. Where a host
  /// starves it, the account of a second of launches takes more than a second.
  [[nodiscard]] std::uint64_t progress() const noexcept;

 private:
  void loop();
  void begin();
  void tick();
  void look_for_kernel_products();
  void wait_for(TimeNs next, std::uint64_t completed);
  [[nodiscard]] bool is_crowded() const;
  void finish();
  void take_records();
  void answer_look();
  void take_looks();
  void ask_for_records();
  void take_last_records();
  void flush_at_exit(bool everything, TimeNs hung_at);
  void leave_out_later_launches(RecordBatch& batch) const noexcept;
  [[nodiscard]] CuptiLook look_at_cupti() const;
  void check_health();
  void say(std::vector<CuptiHealth::Line>&& lines);
  void say_what_is_detected();
  void take_program();
  void take_model(const InterpreterMessage& message);
  void tell_unmatched_names(bool at_exit);
  void announce_new_devices();
  void announce();
  void emit(WindowSummary&& window);
  void add_energy(WindowSummary& window);
  void send_trace(std::string path, TimeNs now);
  void anchor_clock();
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }

  DrainParts parts_;
  RunInfo run_;
  const TimeNs started_;

  HostClock clock_;
  std::optional<RecordingRing> ring_;  ///< MFU_TRACE
  std::optional<RunAccount> account_;
  RunDevices devices_;
  bool announced_ = false;

  Wakeup wake_;
  std::optional<FlushThread> flush_;           ///< where there is CUPTI
  std::optional<EnergyThread> energy_thread_;  ///< without MFU_ENERGY=0
  EnergyAccount energy_;
  std::optional<LookThread> look_;  ///< where launches are seen as they are made, without MFU_IDLE=0
  Stalls stalls_;
  bool flush_stuck_ = false;
  bool unmatched_told_ = false;
  bool kernel_products_ = false;       ///< there are kernels that are products by themselves
  std::uint32_t names_looked_at_ = 0;  ///< for that
  std::uint64_t records_ = 0, records_at_tick_ = 0;
  std::size_t live_at_tick_ = 0;  ///< instances
  TimeNs ticked_at_ = 0;          ///< when the last tick ended
  std::uint64_t launches_before_ = 0;
  bool records_flow_ = true;  ///< some came in the last tick

  CuptiHealth health_;

  /// At exit: where the account ends, and until when its records are waited for.
  struct Cut {
    CorrelationId newest{};  ///< launch of the account, where it is known
    bool known = false;
    TimeNs at = 0;                    ///< when that was; 0: the run goes on
    TimeNs records_until = 0;         ///< when the last records must have been taken
    std::uint32_t later_batches = 0;  ///< in a row, with nothing but what was launched after the cut
    TimeNs leave_at = 0;              ///< a flush that still runs then is left; 0: not decided
  };
  static constexpr std::uint32_t kOnlyLater = 4;
  Cut cut_;
  std::atomic<TimeNs> account_until_{std::numeric_limits<TimeNs>::max()};  ///< [any thread] at exit: when it must end

  std::atomic<bool> stopping_{false};       ///< [any thread]
  std::atomic<std::uint64_t> progress_{0};  ///< [any thread]
  std::atomic<::clockid_t> cpu_clock_{0};   ///< [any thread] of mfu-drain; 0: it has not started
};

}  // namespace mfu
