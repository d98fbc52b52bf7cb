// The kernels of the simulated math libraries: each is loaded by its name at its first launch.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

namespace mfu::sim {

/// Launches the kernel `name`, whose length follows from `cost` (the `// simgpu:` line of README.md without the name)
/// and `params`.
CUresult launch_by_name(const std::string& name, const std::string& cost, std::uint32_t blocks, std::uint32_t threads,
                        void** params, CUstream stream);

/// Whether the stream's launches become nodes of a graph.
bool is_capturing(CUstream stream);

}  // namespace mfu::sim
