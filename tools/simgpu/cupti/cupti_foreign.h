// Other CUPTI clients in the process, as tests need them: their effect on a tool that was there before. They are in
// builds with tests (tests/simgpu/foreign_clients.cpp), and null in others.
#pragma once

#include <string_view>

namespace mfu::sim {

/// Starts the clients that SIMGPU_FOREIGN names, each on its own thread; the times count from the first call.
[[gnu::weak]] void start_foreign_clients();

/// Does one step of a client on the calling thread. False: no such client or action.
[[gnu::weak]] bool run_foreign_client(std::string_view kind, std::string_view action);

[[gnu::weak]] bool acts_as_foreign() noexcept;

/// True while the calling thread acts as a foreign client: the fault script is not meant for it.
inline bool acting_as_foreign() noexcept { return acts_as_foreign != nullptr && acts_as_foreign(); }

}  // namespace mfu::sim
