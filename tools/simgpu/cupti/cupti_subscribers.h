// The clients of the simulated libcupti: who subscribed, who wants which callbacks and records.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/simgpu/interface.h"

namespace mfu::sim {

/// The switches of one client.
struct ClientKinds : Kinds {
  std::atomic<std::uint32_t> kernel_kind;  ///< which of the two kinds of kernel records
};

/// Of CUPTI 13.2's cupti_callbacks.h; up to 13.1 it ends before the last member.
struct SubscriberParams {
  std::size_t struct_size;
  const char* name;
  char* old_name;
  std::size_t old_size;
  std::uint8_t several;  ///< allowMultipleSubscribers
  std::uint8_t padding[7];
};

}  // namespace mfu::sim

struct CUpti_Subscriber_st {
  CUpti_CallbackFunc callback = nullptr;
  void* userdata = nullptr;
  std::string name;
  bool several = false;      ///< does not mind others
  std::uint32_t client = 0;  ///< whose buffers its own forms of calls fill
  bool foreign = false;
  mfu::sim::ClientKinds kinds;
  std::atomic<std::uint8_t> driver[mfu::sim::kMaxCallbackId]{}, runtime[mfu::sim::kMaxCallbackId]{};
  std::atomic<std::uint8_t> resource[mfu::sim::kMaxResourceId]{}, synchronize[8]{};
};

namespace mfu::sim {

/// Reports to the driver that there is a tool, and starts the foreign clients.
void attach();

[[nodiscard]] CUptiResult subscribe(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata,
                                    const SubscriberParams* params);
/// Sets or clears one wish of a flag of the driver's.
void set_flag(std::atomic<std::uint8_t>& flag, std::uint8_t bit, bool on);
[[nodiscard]] bool is_subscriber(CUpti_SubscriberHandle handle);
void unsubscribe(CUpti_SubscriberHandle subscriber);
/// One id, or with id 0 the whole domain.
[[nodiscard]] CUptiResult set_callback(CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain, std::uint32_t id,
                                       bool on);

/// \param subscriber nullptr: for the process, as the calls do that name no subscriber.
[[nodiscard]] CUptiResult set_kind(CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, bool on);

/// The calls that name a subscriber and those that name none do not mix: who comes first decides for the process.
/// Error 14 (CUPTI_ERROR_NOT_COMPATIBLE) for the others, as PyTorch saw it (pull request 192094).
[[nodiscard]] CUptiResult choose_family(bool own_forms);

struct External {
  std::uint32_t kind;
  std::uint64_t id;
};
/// Of the calling thread.
[[nodiscard]] std::vector<External>& external_stack();

}  // namespace mfu::sim
