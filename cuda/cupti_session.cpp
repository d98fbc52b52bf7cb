#include "cuda/cupti_session.h"

#include <algorithm>
#include <cstddef>

#include "core/base/clock.h"
#include "cuda/coexistence.h"
#include "cuda/cupti_versions.h"
#include "cuda/kernel_products.h"
#include "cuda/launch_ids.h"
#include "cuda/launch_stream.h"

namespace mfu {

std::atomic<CuptiSession*> CuptiSession::instance_{nullptr};

namespace {

constinit thread_local bool t_own_thread = false;

constexpr std::uint32_t kThreadBuffers = 130000;  // each thread fills separate buffers by default from here on
/// Work that is recorded: kernels first, without which there is nothing. Copies and sets are for the waterfall.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY2};
constexpr std::uint32_t kNullBufferAllowed = 27;  // 12.9: older ones write through the null pointer

void* as_stream(std::uint64_t handle) noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(handle));  // NOLINT(performance-no-int-to-ptr): it is one
}

bool succeeded(const CUpti_CallbackData& call) noexcept {
  return call.functionReturnValue != nullptr && *static_cast<const int*>(call.functionReturnValue) == 0;
}
bool failed(const CUpti_CallbackData& call) noexcept {
  return call.functionReturnValue != nullptr && *static_cast<const int*>(call.functionReturnValue) != 0;
}

/// Remembers a launch, to learn whether it has finished. Of a call whose stream is not known it remembers nothing.
void arm_probe(HostThread& thread, CUpti_CallbackId id, CorrelationId launch, const CUpti_CallbackData& data) noexcept {
  const LaunchStream stream = stream_of_launch(id, data.functionParams);
  if (stream.known) thread.probe = {launch, as_stream(stream.handle), data.contextUid, true};
}

CuptiSession::Failure failure_of(CUptiResult result) noexcept {
  constexpr CUptiResult kNotAllowed[] = {CUPTI_ERROR_INSUFFICIENT_PRIVILEGES,
                                         CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED,
                                         CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES,
                                         CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED,
                                         CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED,
                                         CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED,
                                         CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED};
  using enum CuptiSession::Failure;
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) return kSlotTaken;
  if (result == CUPTI_ERROR_NOT_INITIALIZED || result == CUPTI_ERROR_UNKNOWN) return kNoDriver;
  return std::ranges::find(kNotAllowed, result) != std::end(kNotAllowed) ? kForbidden : kRefused;
}

}  // namespace

CuptiSession::CuptiSession(const CuptiApi& api, const HostLinks& live, KernelNames& names, ContextDevices& contexts,
                           RecordQueue& queue, Counters& counters, void (*on_first_use)(), void (*on_buffer)())
    : api_(api),
      live_(live),
      contexts_(contexts),
      counters_(counters),
      on_first_use_(on_first_use),
      on_buffer_(on_buffer),
      buffers_(counters, api.version >= kNullBufferAllowed),
      decoder_(api_, names, contexts, queue, counters, &live.attribution->graph_products()),
      names_(names) {}

void CuptiSession::set_own_thread() noexcept { t_own_thread = true; }

CUptiResult CuptiSession::subscribe(bool own_forms) {
  if (own_forms && api_.has_own_forms()) {
    // CUpti_SubscriberParams of CUPTI 13.2 and newer (cupti_callbacks.h); older headers have it without the last part.
    struct Parameters {
      std::size_t size = sizeof(Parameters);
      const char* name = "mfuinject";
      char* other_name = nullptr;
      std::size_t other_size = 0;
      std::uint8_t allow_others = 1;
      std::uint8_t padding[7] = {};
    } parameters;
    static_assert(sizeof(Parameters) == 40);
    own_forms_ = api_.subscribe_v2(&subscriber_, on_callback, this, &parameters) == CUPTI_SUCCESS;
    if (own_forms_) {
      decoder_.read_for(subscriber_);
      return CUPTI_SUCCESS;
    }
  }
  return api_.subscribe(&subscriber_, on_callback, this);
}

CUptiResult CuptiSession::register_buffers() noexcept {
  return own_forms_ ? api_.register_callbacks_v2(subscriber_, on_own_buffer_requested, on_own_buffer_completed)
                    : api_.register_callbacks(on_buffer_requested, on_buffer_completed);
}

CUptiResult CuptiSession::enable(CUpti_ActivityKind kind) noexcept {
  return own_forms_ ? api_.activity_enable_v2(subscriber_, kind, nullptr) : api_.activity_enable(kind);
}

std::uint64_t CuptiSession::timestamp() const noexcept {
  std::uint64_t now = 0;
  if (own_forms_) return api_.get_timestamp_v2(subscriber_, &now) == CUPTI_SUCCESS ? now : 0;
  return api_.get_timestamp != nullptr && api_.get_timestamp(&now) == CUPTI_SUCCESS ? now : 0;
}

CuptiSession::Failure CuptiSession::start(CuptiLevel level, bool whole_graphs, bool own_forms, std::string& why) {
  level_ = level;
  whole_graphs_ = whole_graphs;
  instance_.store(this, std::memory_order_release);
  if (level == CuptiLevel::kFull) {
    if (const CUptiResult result = subscribe(own_forms); result != CUPTI_SUCCESS) {
      instance_.store(nullptr, std::memory_order_release);
      why = "cuptiSubscribe failed with error " + std::to_string(static_cast<int>(result));
      return failure_of(result);
    }
  }
  // So that the thread of an API record is the one gettid() names.
  if (level == CuptiLevel::kShare && api_.set_thread_id_type != nullptr)
    api_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  if (const CUptiResult result = register_buffers(); result != CUPTI_SUCCESS) {
    why = "cuptiActivityRegisterCallbacks failed with error " + std::to_string(static_cast<int>(result));
    release_slot();
    return failure_of(result);
  }
  if (const CUptiResult result = enable_activities(); result != CUPTI_SUCCESS) {
    why = "kernel records were refused with error " + std::to_string(static_cast<int>(result));
    release_slot();
    return failure_of(result) == Failure::kSlotTaken ? Failure::kSlotTaken : Failure::kRefused;
  }
  if (level == CuptiLevel::kFull) enable_launch_callbacks();
  // Beside others of this kind no buffers are taken, so there is no end of a session to look for.
  had_thread_buffers_ =
      !own_forms_ && api_.set_attribute != nullptr && thread_buffers(had_thread_buffers_) && had_thread_buffers_;
  return Failure::kNone;
}

void CuptiSession::release_slot() noexcept {
  if (subscriber_ != nullptr && api_.unsubscribe != nullptr) (void)api_.unsubscribe(subscriber_);
  subscriber_ = nullptr;
  own_forms_ = false;
  decoder_.read_for(nullptr);
}

CUptiResult CuptiSession::enable_activities() {
  // Before any other kind: from then on CUPTI reports no nodes.
  if (whole_graphs_) whole_graphs_ = enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) == CUPTI_SUCCESS;
  if (const CUptiResult result = enable_records(); result != CUPTI_SUCCESS) return result;
  if (level_ == CuptiLevel::kShare) enable_call_records();
  return CUPTI_SUCCESS;
}

CUptiResult CuptiSession::enable_records() noexcept {
  CUptiResult of_kernels = CUPTI_SUCCESS;
  for (const CUpti_ActivityKind kind : kKinds) {
    const CUptiResult result = enable(kind);
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) of_kernels = result;
    if (of_kernels != CUPTI_SUCCESS) break;
  }
  return of_kernels;
}

/// Records of the launch calls alone where CUPTI can choose (12.5), of every API call where it cannot.
void CuptiSession::enable_call_records() {
  bool any = false;
  if (api_.enable_driver_api != nullptr && api_.enable_runtime_api != nullptr) {
    for (std::uint32_t id = 0; id < kCallIds; ++id)
      for (const bool driver : {true, false}) {
        const bool launch = launch_kind(driver, id) != LaunchKind::kNone;
        if (!launch && capture_edge(driver, id) == CaptureEdge::kNone) continue;
        const CUptiResult result = (driver ? api_.enable_driver_api : api_.enable_runtime_api)(id, 1);
        any = any || (launch && result == CUPTI_SUCCESS);
      }
  }
  if (any) return;
  (void)api_.activity_enable(CUPTI_ACTIVITY_KIND_DRIVER);
  (void)api_.activity_enable(CUPTI_ACTIVITY_KIND_RUNTIME);
}

/// An id that this CUPTI does not know is refused, and not needed.
void CuptiSession::enable(CUpti_CallbackDomain domain, std::uint32_t id) noexcept {
  (void)api_.enable_callback(1, subscriber_, domain, id);
}

void CuptiSession::enable_launch_callbacks() {
  // The driver's calls alone: all that the runtime or a library launches goes through one of them, with the same
  // correlation id. The runtime's own would double the callbacks and add nothing.
  for (std::uint32_t id = 0; id < kCallIds; ++id)
    if (launch_kind(true, id) != LaunchKind::kNone || capture_edge(true, id) != CaptureEdge::kNone ||
        is_among(kDriverSynchronize, id) || id == kDriverEventSynchronize || is_among(kDriverSlowCalls, id))
      enable(CUPTI_CB_DOMAIN_DRIVER_API, id);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
  enable(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
}

void CuptiSession::watch_runtime_calls() noexcept {
  if (subscriber_ == nullptr) return;
  for (std::uint32_t id = 0; id < kCallIds; ++id)
    if (launch_kind(false, id) != LaunchKind::kNone) enable(CUPTI_CB_DOMAIN_RUNTIME_API, id);
}

void CuptiSession::flush() noexcept {
  // Where a subscriber of the second kind (CUPTI 13.2) has records of another layout, all calls like this one fail.
  if (api_.flush_all(0) == CUPTI_ERROR_NOT_COMPATIBLE) refused_.fetch_add(1, std::memory_order_relaxed);
}

bool CuptiSession::thread_buffers(bool& on) const noexcept {
  std::uint8_t value = 0;
  std::size_t size = sizeof value;
  if (api_.version < kThreadBuffers || api_.get_attribute == nullptr ||
      api_.get_attribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &size, &value) != CUPTI_SUCCESS)
    return false;
  on = value != 0;
  return true;
}

bool CuptiSession::look_for_ended_session() noexcept {
  returning_.store(true, std::memory_order_seq_cst);
  // No kind is on at this moment. The end of the next session shall be seen too.
  const bool ended = turn_thread_buffers_on();
  if (ended) {
    resume();
    ended_sessions_.fetch_add(1, std::memory_order_relaxed);
  }
  returning_.store(false, std::memory_order_release);
  return ended;
}

/// Whether a client that registers its own buffers takes our records.
bool CuptiSession::others_take_records() const noexcept {
  return coexistence_with(own_forms_ ? OtherProfiler::kOwnForms : OtherProfiler::kRegistering).takes_records;
}

void CuptiSession::make_room() noexcept {
  if (!others_take_records()) return;
  // The last to register has the records. We may be about to, since the session before has ended.
  constexpr int kMostWaits = 500;
  constexpr ::timespec kWait{0, 100'000};
  for (int i = 0; i < kMostWaits && returning_.load(std::memory_order_seq_cst); ++i) ::nanosleep(&kWait, nullptr);
  if (used_.load(std::memory_order_acquire)) flush_everything();
  // A session whose end was not looked for yet left it off. Seen in the middle of this one, that would be taken for
  // its end. No kind is on now either.
  (void)turn_thread_buffers_on();
}

/// False where they were on, or are none of our business.
bool CuptiSession::turn_thread_buffers_on() noexcept {
  bool on = true;
  if (!had_thread_buffers_ || !thread_buffers(on) || on) return false;
  std::uint8_t value = 1;
  std::size_t size = sizeof value;
  (void)api_.set_attribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &size, &value);
  return true;
}

void CuptiSession::resume() noexcept {
  if (others_take_records() && register_buffers() == CUPTI_SUCCESS) (void)enable_activities();
}

std::uint32_t CuptiSession::take_finished(CorrelationId* launches, std::uint32_t count) noexcept {
  const std::uint32_t published = finished_count_.load(std::memory_order_acquire);
  if (published - finished_taken_ > kFinished) finished_taken_ = published - kFinished;
  std::uint32_t taken = 0;
  for (; taken < count && finished_taken_ != published; ++finished_taken_)
    launches[taken++] =
        static_cast<CorrelationId>(finished_[finished_taken_ % kFinished].load(std::memory_order_relaxed));
  return taken;
}

std::uint64_t CuptiSession::take_dropped() noexcept {
  std::size_t dropped = 0;
  const CUptiResult result =
      own_forms_ ? api_.get_dropped_v2(subscriber_, nullptr, 0, &dropped) : api_.get_dropped(nullptr, 0, &dropped);
  return result == CUPTI_SUCCESS ? dropped : 0;
}

SampledCost::Estimate CuptiSession::callback_seconds(const TickClock& clock) const {
  const SampledCost::Estimate ticks = callback_cost_.estimate();
  const auto launches = static_cast<double>(live_.attribution->launches_seen());
  const Ticks now = ticks_now();
  const auto in_all = static_cast<Ticks>(std::min(ticks.mean * launches, static_cast<double>(now)));
  const double mean = seconds(clock.to_ns(now) - clock.to_ns(now - in_all));
  return {mean, ticks.mean > 0 ? mean * ticks.error / ticks.mean : 0};
}

void CuptiSession::first_use() noexcept {
  if (!used_.load(std::memory_order_relaxed) && !used_.exchange(true, std::memory_order_acq_rel)) on_first_use_();
}

void CUPTIAPI CuptiSession::on_callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                        const void* data) {
  if (self == nullptr || data == nullptr || host_switches().inert.load(std::memory_order_relaxed)) return;
  auto& session = *static_cast<CuptiSession*>(self);
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) [[unlikely]]
    return session.on_other_domain(domain, id, data);
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  const LaunchKind kind = launch_kind(true, id);
  if (kind == LaunchKind::kNone) [[unlikely]]
    session.on_other_call(id, call);
  else if (call.callbackSite == CUPTI_API_ENTER)
    session.enter_launch(id, kind, call);
  else
    session.leave_launch(call);
}

void CuptiSession::on_other_domain(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) noexcept {
  switch (domain) {
    case CUPTI_CB_DOMAIN_RUNTIME_API: {
      const auto& call = *static_cast<const CUpti_CallbackData*>(data);
      const LaunchKind kind = launch_kind(false, id);
      if (kind == LaunchKind::kNone) return;
      if (call.callbackSite != CUPTI_API_ENTER)
        leave_launch(call);
      else if (ThreadState* state = launching_thread(call))
        note_launch(*state, kind, call, {});
      return;
    }
    case CUPTI_CB_DOMAIN_RESOURCE:
      on_resource(id, *static_cast<const CUpti_ResourceData*>(data));
      return;
    case CUPTI_CB_DOMAIN_STATE:
      if (id == CUPTI_CBID_STATE_FATAL_ERROR) fatal_.store(true, std::memory_order_relaxed);
      return;
    default:
      return;
  }
}

/// Null: this thread is not followed, and the launch is noted without one.
inline ThreadState* CuptiSession::launching_thread(const CUpti_CallbackData& call) const noexcept {
  const HostThread* thread = live_thread(live_);
  if (thread != nullptr && thread->state != nullptr) [[likely]]
    return thread->state;
  live_.attribution->launch_anonymous(static_cast<CorrelationId>(call.correlationId), call.contextUid);
  return nullptr;
}

[[gnu::always_inline]] inline LaunchPlace CuptiSession::place_of(ThreadState& state, CUpti_CallbackId id,
                                                                 LaunchKind kind,
                                                                 const CUpti_CallbackData& call) const noexcept {
  const StreamArgument argument = stream_argument(id);
  if (!argument.is_plain() || call.functionParams == nullptr) [[unlikely]]
    return odd_place_of(state, id, call);
  const LaunchPlace place =
      live_.attribution->place_on(state, call.contextUid, argument.read(call.functionParams), argument.per_thread);
  return kind == LaunchKind::kGraph && !whole_graphs_ ? place.graph() : place;
}

/// Of a call that does not simply name its stream among its arguments.
[[gnu::noinline]] LaunchPlace CuptiSession::odd_place_of(ThreadState& state, CUpti_CallbackId id,
                                                         const CUpti_CallbackData& call) const noexcept {
  const LaunchStream stream = stream_of_launch(id, call.functionParams);
  if (!stream.known) return {};
  const LaunchPlace place = live_.attribution->place_on(state, call.contextUid, stream.handle, stream.per_thread);
  return stream.programmatic ? place.programmatic() : place;
}

[[gnu::always_inline]] inline void CuptiSession::note_launch(ThreadState& state, LaunchKind kind,
                                                             const CUpti_CallbackData& call,
                                                             LaunchPlace place) noexcept {
  GraphNumber graph = GraphNumber::kNone;
  if (kind == LaunchKind::kGraph && follows_graphs_ && call.functionParams != nullptr) [[unlikely]]
    graph = live_.attribution->graph_contents().number_of(detail::read_at<std::uint64_t>(call.functionParams, 0));
  const auto id = static_cast<CorrelationId>(call.correlationId);
  const bool kernel = kind == LaunchKind::kKernel;
  if (live_.attribution->launch(state, id, call.contextUid, place, kernel, graph))
    Attribution::name_launch(state, id, kernel ? call.symbolName : nullptr);
}

[[gnu::always_inline]] inline void CuptiSession::note_driver_launch(ThreadState& state, CUpti_CallbackId id,
                                                                    LaunchKind kind,
                                                                    const CUpti_CallbackData& call) noexcept {
  if (special_launches_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return note_special_launch(state, id, kind, call);
  note_launch(state, kind, call, place_of(state, id, kind, call));
}

[[gnu::noinline]] void CuptiSession::note_special_launch(ThreadState& state, CUpti_CallbackId id, LaunchKind kind,
                                                         const CUpti_CallbackData& call) noexcept {
  const std::uint32_t special = special_launches_.load(std::memory_order_relaxed);
  if (follows_graphs_ && kind == LaunchKind::kKernel)
    if (HostThread* thread = host_thread_if_any())
      thread->captured = {static_cast<CorrelationId>(call.correlationId), call.symbolName,
                          grid_of_launch(id, call.functionParams)};
  const bool product = (special & kKernelProducts) != 0 && kind == LaunchKind::kKernel &&
                       may_be_product(call.symbolName) && begin_product(state, id, call);
  note_launch(state, kind, call, place_of(state, id, kind, call));
  if (product) live_.attribution->end_product(state, false);
  // Of a captured stream and nothing else is known here; streams that joined the capture are known by the graph node
  // that the call creates.
  if ((special & ~kKernelProducts) != 0 && on_capturing_stream(id, call)) live_.attribution->launch_captured(state);
}

/// A kernel that is a matrix product by itself, without a library.
[[gnu::noinline]] bool CuptiSession::begin_product(ThreadState& state, CUpti_CallbackId id,
                                                   const CUpti_CallbackData& call) const noexcept {
  Product product;
  return product_of_kernel(call.symbolName, parameters_of_launch(id, call.functionParams), product) &&
         live_.attribution->begin_product(state, ProductWords(product));
}

/// Hot: every launch of the process comes through here, and through leave_launch.
[[gnu::noinline]] void CuptiSession::enter_launch(CUpti_CallbackId id, LaunchKind kind,
                                                  const CUpti_CallbackData& call) noexcept {
  ThreadState* state = launching_thread(call);
  if (state == nullptr) [[unlikely]]
    return;
  constexpr std::uint64_t kSampleMask = 255;
  if ((state->launches.load(std::memory_order_relaxed) & kSampleMask) == kSampleMask) [[unlikely]]
    return enter_sampled(*state, id, kind, call);
  note_driver_launch(*state, id, kind, call);
}

/// One launch in 256: its callback is timed, and its end is looked for.
[[gnu::noinline]] void CuptiSession::enter_sampled(ThreadState& state, CUpti_CallbackId id, LaunchKind kind,
                                                   const CUpti_CallbackData& call) noexcept {
  const Ticks begin = ticks_now();
  note_driver_launch(state, id, kind, call);
  callback_cost_.add(ticks_now() - begin);
  if (HostThread* thread = kind == LaunchKind::kKernel ? host_thread_if_any() : nullptr)
    arm_probe(*thread, id, static_cast<CorrelationId>(call.correlationId), call);
}

/// Hot. A thread that was not followed when the call began is inside of no launch call.
[[gnu::noinline]] void CuptiSession::leave_launch(const CUpti_CallbackData& call) noexcept {
  const HostThread* thread = host_thread_if_any();
  if (thread == nullptr || thread->state == nullptr) [[unlikely]]
    return;
  live_.attribution->launch_done(*thread->state, static_cast<CorrelationId>(call.correlationId), failed(call));
}

/// A call of the driver that launches nothing.
[[gnu::noinline]] void CuptiSession::on_other_call(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
  if (is_among(kDriverSynchronize, id) || id == kDriverEventSynchronize) return on_synchronized(id, data);
  if (is_among(kDriverSlowCalls, id)) return note_inside(&ThreadState::slow_call, data);
  if (is_among(kDriverGraphChanges, id)) {
    live_.attribution->graph_products().graphs_changed();
    if (follows_graphs_) on_graph_change(id, data);
    return;
  }
  if (data.functionParams == nullptr) return;
  if (const EventCall event = event_call(id); event.kind != EventCall::Kind::kNone) {
    if (data.callbackSite == CUPTI_API_ENTER) on_event(event, data);
    return;
  }
  void* const stream = *static_cast<void* const*>(data.functionParams);
  const CaptureEdge edge = capture_edge(true, id);
  if (edge == CaptureEdge::kBegin && data.callbackSite == CUPTI_API_EXIT && succeeded(data)) {
    if (exchange_capturing(nullptr, stream)) special_launches_.fetch_add(1, std::memory_order_release);
  } else if (edge == CaptureEdge::kEnd && data.callbackSite == CUPTI_API_ENTER && stream != nullptr) {
    if (exchange_capturing(stream, nullptr)) special_launches_.fetch_sub(1, std::memory_order_release);
  }
}

/// False: no place of capturing_ holds `from`.
bool CuptiSession::exchange_capturing(void* from, void* to) noexcept {
  return std::any_of(capturing_.begin(), capturing_.end(), [from, to](std::atomic<void*>& slot) {
    void* held = from;
    return slot.compare_exchange_strong(held, to, std::memory_order_acq_rel);
  });
}

/// An event is recorded on a stream, or a stream waits for one.
void CuptiSession::on_event(const EventCall& call, const CUpti_CallbackData& data) noexcept {
  const HostThread* thread = live_thread(live_);
  if (thread == nullptr || thread->state == nullptr) return;
  const bool waits = call.kind == EventCall::Kind::kWait;
  const auto first = detail::read_at<std::uint64_t>(data.functionParams, 0);
  const auto second = detail::read_at<std::uint64_t>(data.functionParams, 8);
  const std::uint64_t stream = waits ? first : second, event = waits ? second : first;
  const LaunchPlace place = live_.attribution->place_on(*thread->state, data.contextUid, stream, call.per_thread);
  // Handles are addresses, aligned to 16: events of one process that share these bits lie 64 GiB apart.
  live_.attribution->event_call(*thread->state, static_cast<CorrelationId>(data.correlationId), waits, place,
                                static_cast<std::uint32_t>(event >> 4));
}

void CuptiSession::follow_events() noexcept {
  if (level_ != CuptiLevel::kFull || follows_events_) return;
  follows_events_ = true;
  for (const std::uint32_t id : kDriverEventCalls) enable(CUPTI_CB_DOMAIN_DRIVER_API, id);
}

void CuptiSession::follow_products() noexcept {
  if (level_ != CuptiLevel::kFull || api_.get_graph_node_id == nullptr || follows_graph_products_) return;
  follows_graph_products_ = true;
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING);
  for (const std::uint32_t id : kDriverGraphChanges) enable(CUPTI_CB_DOMAIN_DRIVER_API, id);
}

void CuptiSession::follow_graphs() noexcept {
  if (level_ != CuptiLevel::kFull || follows_graphs_) return;
  follows_graphs_ = true;
  for (const CUpti_CallbackId id :
       {CUPTI_CBID_RESOURCE_GRAPH_CREATED, CUPTI_CBID_RESOURCE_GRAPH_CLONED, CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING,
        CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING})
    enable(CUPTI_CB_DOMAIN_RESOURCE, id);
  for (const std::uint32_t id : kDriverGraphChanges) enable(CUPTI_CB_DOMAIN_DRIVER_API, id);
}

void CuptiSession::follow_kernel_products() noexcept {
  if (level_ == CuptiLevel::kFull) special_launches_.fetch_or(kKernelProducts, std::memory_order_relaxed);
}

/// 0: not known.
std::uint64_t CuptiSession::node_id(CUgraphNode node) const noexcept {
  std::uint64_t id = 0;
  return node != nullptr && api_.get_graph_node_id(node, &id) == CUPTI_SUCCESS ? id : 0;
}

void CuptiSession::on_graph_node(CUpti_CallbackId id, const CUpti_GraphData& graph) noexcept {
  GraphProducts& products = live_.attribution->graph_products();
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    const HostThread* thread = host_thread_if_any();
    if (thread != nullptr && thread->state != nullptr && thread->state->launch_product)
      live_.attribution->launch_captured_as(*thread->state, node_id(graph.node));
    return;
  }
  if (!products.any()) return;
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING) {
    products.forget(node_id(graph.node));
    return;
  }
  if (const ProductTag product = products.find(node_id(graph.originalNode))) products.set(node_id(graph.node), product);
}

/// A graph gets a node. False: nothing runs there.
bool CuptiSession::describe_node(const CUpti_GraphData& graph, GraphNote& note) noexcept {
  note.what = GraphNote::What::kNode;
  switch (graph.nodeType) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return false;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      note.kind = ActivityKind::kMemcpy;
      return true;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      note.kind = ActivityKind::kMemset;
      return true;
    case CU_GRAPH_NODE_TYPE_KERNEL:
      if (const HostThread* thread = host_thread_if_any();
          thread != nullptr && thread->state != nullptr && thread->captured.name != nullptr &&
          thread->state->in_launch_call &&
          thread->state->last_correlation.load(std::memory_order_relaxed) == raw(thread->captured.launch)) {
        note.name = names_.intern(thread->captured.name);
        note.extent = thread->captured.grid;
        note.product = thread->state->launch_product;
        return true;
      }
      break;  // the program added it by hand
    default:
      break;
  }
  note.what = GraphNote::What::kOpaque;
  return true;
}

/// A graph is built, made executable or destroyed.
void CuptiSession::on_graph(CUpti_CallbackId id, const CUpti_GraphData& graph) noexcept {
  GraphContents& contents = live_.attribution->graph_contents();
  const auto handle = [](const void* of) { return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(of)); };
  GraphNote note;
  note.graph = handle(graph.graph);
  switch (id) {
    case CUPTI_CBID_RESOURCE_GRAPH_CREATED:
      note.what = GraphNote::What::kBegins;
      break;
    case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING:
      note.what = GraphNote::What::kEnds;
      break;
    case CUPTI_CBID_RESOURCE_GRAPH_CLONED:
      note.what = GraphNote::What::kCopies;
      note.extent = handle(graph.originalGraph);
      break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
      return contents.runs(handle(graph.graphExec), note.graph);
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      return contents.forget(handle(graph.graphExec));
    default:
      if (!describe_node(graph, note)) return;
  }
  contents.note(note);
}

/// A call gives nodes other kernels or arguments, or an executable graph all nodes of another graph.
void CuptiSession::on_graph_change(CUpti_CallbackId id, const CUpti_CallbackData& call) noexcept {
  if (call.callbackSite != CUPTI_API_EXIT || call.functionParams == nullptr) return;
  GraphContents& contents = live_.attribution->graph_contents();
  const auto first = detail::read_at<std::uint64_t>(call.functionParams, 0);
  if (!changes_executable_graph(id)) {
    GraphNote any;  // which graph the node is of is not said
    any.what = GraphNote::What::kOpaque;
    return contents.note(any);
  }
  contents.forget(first);
  if (is_graph_update(id) && !failed(call))
    contents.runs(first, detail::read_at<std::uint64_t>(call.functionParams, 8));
}

/// A call that may take long begins or ends.
void CuptiSession::note_inside(std::atomic<const char*> ThreadState::*call, const CUpti_CallbackData& data) noexcept {
  HostThread* thread = host_thread_if_any();
  if (thread == nullptr || thread->state == nullptr) return;
  const bool leaves = data.callbackSite == CUPTI_API_EXIT;
  (thread->state->*call).store(leaves ? nullptr : data.functionName, std::memory_order_relaxed);
}

/// The host waits for a stream or a context, or the wait is over.
void CuptiSession::on_synchronized(CUpti_CallbackId id, const CUpti_CallbackData& data) noexcept {
  note_inside(&ThreadState::waits_in, data);
  if (data.callbackSite != CUPTI_API_EXIT || !succeeded(data) || id == kDriverEventSynchronize) return;
  HostThread* thread = host_thread_if_any();
  if (thread == nullptr || !thread->probe.armed || thread->probe.context != data.contextUid) return;
  if (is_stream_synchronize(id) &&
      (data.functionParams == nullptr || *static_cast<void* const*>(data.functionParams) != thread->probe.stream))
    return;
  thread->probe.armed = false;
  const std::uint32_t at = finished_count_.fetch_add(1, std::memory_order_relaxed);
  finished_[at % kFinished].store(raw(thread->probe.launch), std::memory_order_release);
}

bool CuptiSession::on_capturing_stream(CUpti_CallbackId id, const CUpti_CallbackData& data) const noexcept {
  const LaunchStream stream = stream_of_launch(id, data.functionParams);
  if (!stream.known || stream.handle == 0) return false;
  return std::any_of(capturing_.begin(), capturing_.end(), [&stream](const std::atomic<void*>& slot) {
    return slot.load(std::memory_order_acquire) == as_stream(stream.handle);
  });
}

void CuptiSession::on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) noexcept {
  switch (id) {
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED: {
      contexts_alive_.fetch_add(1, std::memory_order_relaxed);
      std::uint32_t context = 0, device = 0;
      if (api_.get_context_id != nullptr && api_.get_device_id != nullptr &&
          api_.get_context_id(data.context, &context) == CUPTI_SUCCESS &&
          api_.get_device_id(data.context, &device) == CUPTI_SUCCESS)
        contexts_.set(context, device);
      first_use();
      return;
    }
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      if (contexts_alive_.load(std::memory_order_relaxed) != 0) contexts_alive_.fetch_sub(1, std::memory_order_relaxed);
      return;
    case CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING: {
      std::uint32_t context = 0;
      if (api_.get_context_id != nullptr && api_.get_context_id(data.context, &context) == CUPTI_SUCCESS)
        live_.attribution->lanes().remove(context, reinterpret_cast<std::uintptr_t>(data.resourceHandle.stream));
      return;
    }
    case CUPTI_CBID_RESOURCE_GRAPH_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPH_CLONED:
    case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING:
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      if (follows_graphs_ && data.resourceDescriptor != nullptr)
        on_graph(id, *static_cast<const CUpti_GraphData*>(data.resourceDescriptor));
      return;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
      if (follows_graphs_ && data.resourceDescriptor != nullptr)
        on_graph(id, *static_cast<const CUpti_GraphData*>(data.resourceDescriptor));
      if (HostThread* thread = host_thread_if_any(); thread != nullptr && thread->state != nullptr)
        live_.attribution->launch_captured(*thread->state);
      [[fallthrough]];
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
    case CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING:
      if (follows_graph_products_ && data.resourceDescriptor != nullptr)
        on_graph_node(id, *static_cast<const CUpti_GraphData*>(data.resourceDescriptor));
      return;
    default:
      return;
  }
}

void CUPTIAPI CuptiSession::on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *buffer = nullptr;
  *size = 0;
  *max_records = 0;
  CuptiSession* session = instance_.load(std::memory_order_acquire);
  if (session == nullptr) return;
  HostThread* thread = host_thread_if_any();
  const std::uint32_t lane = thread != nullptr && thread->state != nullptr ? thread->state->index : 0;
  *buffer = session->buffers_.request(lane, *size, *max_records);
  session->first_use();
}

void CUPTIAPI CuptiSession::on_buffer_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                                std::size_t valid) {
  CuptiSession* session = instance_.load(std::memory_order_acquire);
  if (session == nullptr || buffer == nullptr) return;
  session->completed_.fetch_add(1, std::memory_order_relaxed);
  std::size_t size = 0;
  switch (session->buffers_.owner_of(buffer, size)) {
    case ActivityBuffers::Owner::kForeign:  // another client's: not ours to read, and not ours to free
      session->foreign_.fetch_add(1, std::memory_order_relaxed);
      session->counters_.add(Counter::kBuffersForeign);
      return;
    case ActivityBuffers::Owner::kSpare:
      session->counters_.add(Counter::kRecordsDropped);
      break;
    case ActivityBuffers::Owner::kOurs:
      if (valid > size) valid = size;
      if (!host_switches().inert.load(std::memory_order_relaxed) ||
          host_switches().closing.load(std::memory_order_relaxed))
        session->decoder_.decode(buffer, valid, t_own_thread);
      break;
  }
  session->buffers_.give_back(buffer, valid, time_of(CLOCK_MONOTONIC));
  session->on_buffer_();
}

}  // namespace mfu
