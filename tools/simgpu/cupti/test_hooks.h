// Behaviour that tests alone ask for, in builds with tests (tests/simgpu/foreign_clients.cpp, spoilt_records.cpp,
// callback_costs.cpp): null in others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tools/simgpu/cupti/cupti_records.h"

namespace mfu::sim {

/// Starts the other CUPTI clients of SIMGPU_FOREIGN, each on its own thread; times count from the first call.
[[gnu::weak]] void start_foreign_clients();
/// Does one step of a client on the calling thread. False: no such client or action.
[[gnu::weak]] bool run_foreign_client(std::string_view kind, std::string_view action);
[[gnu::weak]] bool acts_as_foreign() noexcept;
/// True while the calling thread acts as a foreign client: the fault script is not meant for it.
inline bool acting_as_foreign() noexcept { return acts_as_foreign != nullptr && acts_as_foreign(); }

/// The time of the clock that a client has put in the place of CUPTI's; 0: none has.
[[gnu::weak]] std::uint64_t client_timestamp();
/// Changes the record `serial`, which the calling thread delivers, to what its client gets.
[[gnu::weak]] void spoil_record(RecordView& record, std::uint64_t serial, Fate& fate);
/// Whether the next record is lost, and whether CUPTI counts that.
enum class Loss : std::uint8_t { kNone, kCounted, kSilent };
[[gnu::weak]] Loss lose_record();
/// The client has its callback; it has had it, with `bytes` of records (`buffer` nullptr: there is none); a buffer that
/// it gives is none that it is about to get.
[[gnu::weak]] void begin_delivery(const std::uint8_t* buffer);
[[gnu::weak]] void end_delivery(std::uint8_t* buffer, std::size_t bytes);
[[gnu::weak]] void await_delivery(const std::uint8_t* buffer);

/// Before and after a callback of the client, whose time is written with the truth. \return 0: it is not asked for
[[gnu::weak]] std::int64_t begin_callback();
[[gnu::weak]] void end_callback(CallbackCostIndex which, std::int64_t began);
template <typename Callback>
void timed(CallbackCostIndex which, Callback&& callback) {
  const std::int64_t began = begin_callback != nullptr ? begin_callback() : 0;
  callback();
  if (began != 0) end_callback(which, began);
}

}  // namespace mfu::sim
