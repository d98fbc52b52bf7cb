// Behaviour that tests alone ask for, in builds with tests (tests/simgpu/foreign_clients.cpp, record_names.cpp): null
// in others.
#pragma once

#include <cstdint>
#include <string_view>

namespace mfu::sim {

/// Starts the other CUPTI clients of SIMGPU_FOREIGN, each on its own thread; times count from the first call.
[[gnu::weak]] void start_foreign_clients();
/// Does one step of a client on the calling thread. False: no such client or action.
[[gnu::weak]] bool run_foreign_client(std::string_view kind, std::string_view action);
[[gnu::weak]] bool acts_as_foreign() noexcept;
/// True while the calling thread acts as a foreign client: the fault script is not meant for it.
inline bool acting_as_foreign() noexcept { return acts_as_foreign != nullptr && acts_as_foreign(); }

/// The name of the record `serial`, which the calling thread delivers, as its client gets it.
[[gnu::weak]] const char* spoil_name(const char* name, std::uint64_t serial);
/// The client has had its callback.
[[gnu::weak]] void end_delivery();

}  // namespace mfu::sim
