// Our one use of CUPTI in this process: callbacks that note launches, activity kinds that time the work.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "core/attribution/attribution.h"
#include "core/attribution/context_devices.h"
#include "core/attribution/record_queue.h"
#include "core/base/counters.h"
#include "core/base/result.h"
#include "core/base/sampled_cost.h"
#include "core/kernels/kernel_names.h"
#include "cuda/activity_buffers.h"
#include "cuda/activity_decode.h"
#include "cuda/cupti_api.h"
#include "cuda/host_thread.h"
#include "cuda/launch_ids.h"
#include "cuda/launch_stream.h"

namespace mfu {

/// How much of CUPTI there is to use.
enum class CuptiLevel : std::uint8_t {
  kFull,   ///< launch callbacks and activity records
  kShare,  ///< activity records only, the API calls among them: the subscriber slot is left to torch.profiler
};

/// Callbacks are counted where they happen; this object only wires. At most one per
/// process, leaked: callbacks may come until the process is gone.
class CuptiSession {
 public:
  /// Why start() failed, as far as the ladder of fallbacks cares.
  enum class Failure : std::uint8_t {
    kNone,
    kSlotTaken,  ///< another tool holds the subscriber
    kNoDriver,   ///< CUPTI found no driver it can use
    kForbidden,  ///< rights, virtualisation, confidential computing
    kRefused,    ///< anything else, kernel records refused among it
  };

  /// \param on_first_use once, when there is a context or a record; \param on_buffer when a buffer was decoded.
  CuptiSession(const CuptiApi& api, const HostLinks& live, KernelNames& names, ContextDevices& contexts,
               RecordQueue& queue, Counters& counters, void (*on_first_use)(), void (*on_buffer)());

  /// [inside cuInit] Subscribes and enables. No thread, no driver call. On failure nothing stays registered
  /// that could disturb another tool. `why` gets one clause for the log.
  /// \param whole_graphs a launch of a CUDA graph is one record, and its nodes have none.
  /// \param own_forms as a subscriber with separate buffers beside others of that kind (kFull only). Where this CUPTI
  ///   cannot, or refuses, as the only one.
  [[nodiscard]] Failure start(CuptiLevel level, bool whole_graphs, bool own_forms, std::string& why);
  /// Whether there may be others beside us.
  [[nodiscard]] bool own_forms() const noexcept { return own_forms_; }
  /// [mfu-drain] CUPTI's clock; 0: it does not say.
  [[nodiscard]] std::uint64_t timestamp() const noexcept;
  /// Whether graphs are traced as a whole: asked for, and this CUPTI can.
  [[nodiscard]] bool whole_graphs() const noexcept { return whole_graphs_; }

  /// [mfu-flush] Asks CUPTI for the buffers that are complete. May block for long; never under a lock.
  void flush() noexcept;
  /// [mfu-flush] At exit, with the last context still alive, and from make_room: asks for every buffer. Work that is
  /// still running then comes with an end of 0, and is never delivered again, so this is for no other moment.
  void flush_everything() noexcept { api_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); }
  /// [mfu-flush] Records that CUPTI dropped since the last call.
  [[nodiscard]] std::uint64_t take_dropped() noexcept;
  /// [inside cuInit] From now on the products of captured library calls are followed through graphs and their copies.
  void follow_products() noexcept;
  /// [any thread] From now on kernels are looked at that are products by themselves (kernel_products.h). That reads a
  /// line of memory for each kernel's name, so only where there may be such.
  void follow_kernel_products() noexcept;
  /// [inside cuInit] From now on GraphContents is filled, so that graphs that are traced as a whole can be split.
  void follow_graphs() noexcept;
  [[nodiscard]] bool follows_graphs() const noexcept { return follows_graphs_; }
  /// [mfu-drain] From now on the calls are followed that record events and wait for them.
  void follow_events() noexcept;
  /// [mfu-flush] Looks whether another client's session has ended, and if so registers again: at once, since a next
  /// session may begin at any moment, and who registers then takes its records. Kineto ends each session by setting
  /// the attribute that gives every thread a separate buffer back to 0; from CUPTI 13.0 on it is 1 unless somebody
  /// has set it.
  /// True: one has, and we have registered.
  bool look_for_ended_session() noexcept;
  /// [any thread] Whether the end of such a session can be seen.
  [[nodiscard]] bool sees_ends() const noexcept { return had_thread_buffers_; }
  /// [host thread] Another client is about to register its buffers. CUPTI would go on to fill the buffers that it has,
  /// and give to that client, which throws it away: so it is all asked for now. Work of this moment is lost to us,
  /// as it would be there.
  void make_room() noexcept;
  /// [any thread] How many have ended so far, as far as is known.
  [[nodiscard]] std::uint64_t ended_sessions() const noexcept {
    return ended_sessions_.load(std::memory_order_relaxed);
  }
  /// [mfu-drain] Registers and enables again, after another activity client went away.
  void resume() noexcept;
  /// [mfu-drain] The runtime's launch calls too, from now on: for a driver below which not every launch makes one of
  /// the driver calls that we know.
  void watch_runtime_calls() noexcept;
  /// [mfu-drain] Takes up to `count` launches that are known to have finished, since the host has synchronised their
  /// stream. A sample, one launch in 256 at most.
  [[nodiscard]] std::uint32_t take_finished(CorrelationId* launches, std::uint32_t count) noexcept;
  /// The library's calls that CUPTI refused because of another client.
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  /// [any thread] Whether CUPTI said that it is dead.
  [[nodiscard]] bool fatal() const noexcept { return fatal_.load(std::memory_order_relaxed); }
  /// Buffers that came back, ours or not; foreign ones alone.
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t foreign() const noexcept { return foreign_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t live_contexts() const noexcept { return contexts_alive_.load(std::memory_order_relaxed); }
  [[nodiscard]] const CuptiApi& api() const noexcept { return api_; }
  [[nodiscard]] CuptiLevel level() const noexcept { return level_; }
  [[nodiscard]] const ActivityBuffers& buffers() const noexcept { return buffers_; }
  /// Time that the library's launch callbacks took so far, from one in 256 of them [s]. CUPTI's own cost is not in it.
  [[nodiscard]] SampledCost::Estimate callback_seconds(const TickClock& clock) const;
  /// The completed callbacks of this thread may wait for room in the queue.
  static void set_own_thread() noexcept;

 private:
  static void CUPTIAPI on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);
  static void CUPTIAPI on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
  static void CUPTIAPI on_buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                           std::size_t size, std::size_t valid);
  void on_other_domain(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) noexcept;
  void on_other_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void enter_launch(CUpti_CallbackId id, LaunchKind kind, const CUpti_CallbackData& call) noexcept;
  void enter_sampled(ThreadState& state, CUpti_CallbackId id, LaunchKind kind, const CUpti_CallbackData& call) noexcept;
  void leave_launch(const CUpti_CallbackData& call) noexcept;
  [[nodiscard]] ThreadState* launching_thread(const CUpti_CallbackData& call) const noexcept;
  void note_launch(ThreadState& state, LaunchKind kind, const CUpti_CallbackData& call, LaunchPlace place) noexcept;
  void note_driver_launch(ThreadState& state, CUpti_CallbackId id, LaunchKind kind,
                          const CUpti_CallbackData& call) noexcept;
  void note_special_launch(ThreadState& state, CUpti_CallbackId id, LaunchKind kind,
                           const CUpti_CallbackData& call) noexcept;
  void on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) noexcept;
  [[nodiscard]] std::uint64_t node_id(CUgraphNode node) const noexcept;
  void on_graph_node(CUpti_CallbackId id, const CUpti_GraphData& graph) noexcept;
  void on_graph(CUpti_CallbackId id, const CUpti_GraphData& graph) noexcept;
  bool describe_node(const CUpti_GraphData& graph, GraphNote& note) noexcept;
  void on_graph_change(CUpti_CallbackId id, const CUpti_CallbackData& call) noexcept;
  static void on_own_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records, void*) {
    on_buffer_requested(buffer, size, max_records);
  }
  static void on_own_buffer_completed(std::uint8_t* buffer, std::size_t size, std::size_t valid, void*) {
    on_buffer_completed(nullptr, 0, buffer, size, valid);
  }
  [[nodiscard]] CUptiResult subscribe(bool own_forms);
  [[nodiscard]] CUptiResult register_buffers() noexcept;
  [[nodiscard]] CUptiResult enable(CUpti_ActivityKind kind) noexcept;
  void enable(CUpti_CallbackDomain domain, std::uint32_t id) noexcept;
  void release_slot() noexcept;
  void enable_launch_callbacks();
  static void note_inside(std::atomic<const char*> ThreadState::*call, const CUpti_CallbackData& data) noexcept;
  void on_synchronized(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept;
  void enable_call_records();
  [[nodiscard]] CUptiResult enable_activities();
  [[nodiscard]] CUptiResult enable_records() noexcept;
  [[nodiscard]] bool thread_buffers(bool& on) const noexcept;
  [[nodiscard]] bool others_take_records() const noexcept;
  bool turn_thread_buffers_on() noexcept;
  void first_use() noexcept;
  [[nodiscard]] LaunchPlace place_of(ThreadState& state, CUpti_CallbackId id, LaunchKind kind,
                                     const CUpti_CallbackData& call) const noexcept;
  [[nodiscard]] LaunchPlace odd_place_of(ThreadState& state, CUpti_CallbackId id,
                                         const CUpti_CallbackData& call) const noexcept;
  [[nodiscard]] bool begin_product(ThreadState& state, CUpti_CallbackId id,
                                   const CUpti_CallbackData& call) const noexcept;
  void on_event(const EventCall& call, const CUpti_CallbackData& data) noexcept;
  bool exchange_capturing(void* from, void* to) noexcept;
  [[nodiscard]] bool on_capturing_stream(CUpti_CallbackId id, const CUpti_CallbackData& data) const noexcept;

  CuptiApi api_;
  const HostLinks& live_;
  ContextDevices& contexts_;
  Counters& counters_;
  void (*on_first_use_)();
  void (*on_buffer_)();
  ActivityBuffers buffers_;
  ActivityDecoder decoder_;
  KernelNames& names_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  CuptiLevel level_ = CuptiLevel::kFull;
  bool follows_events_ = false, follows_graph_products_ = false, follows_graphs_ = false;
  bool whole_graphs_ = false;
  bool own_forms_ = false;
  bool had_thread_buffers_ = false;  ///< before anybody changed it
  std::atomic<std::uint64_t> ended_sessions_{0};
  std::atomic<bool> returning_{false};  ///< we look whether a session has ended, and register if so
  std::atomic<bool> used_{false};
  std::atomic<bool> fatal_{false};
  std::atomic<std::uint64_t> completed_{0}, foreign_{0}, refused_{0};
  static constexpr std::uint32_t kFinished = 16;
  std::array<std::atomic<std::uint32_t>, kFinished> finished_{};  ///< a ring; the newest are kept
  std::atomic<std::uint32_t> finished_count_{0};
  std::uint32_t finished_taken_ = 0;  ///< [mfu-drain]
  std::atomic<std::uint32_t> contexts_alive_{0};
  SampledCost callback_cost_;
  /// Why a launch is to be looked at: streams being captured, and kKernelProducts.
  std::atomic<std::uint32_t> special_launches_{0};
  static constexpr std::uint32_t kKernelProducts = 1u << 31;
  static constexpr std::uint32_t kMaxCaptures = 32;
  std::array<std::atomic<void*>, kMaxCaptures> capturing_{};
  static std::atomic<CuptiSession*> instance_;  ///< buffer callbacks carry no user data
};

}  // namespace mfu
