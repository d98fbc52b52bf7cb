// Names of kernels as tests want a client to get them: longer than the program's, missing, or unreadable once its
// callback has returned. In builds with tests (tests/simgpu/record_names.cpp); null in others.
#pragma once

#include <cstdint>

namespace mfu::sim {

/// The name of the record `serial`, which the calling thread delivers.
[[gnu::weak]] const char* spoil_name(const char* name, std::uint64_t serial);
/// The client has had its callback.
[[gnu::weak]] void end_delivery();

}  // namespace mfu::sim
