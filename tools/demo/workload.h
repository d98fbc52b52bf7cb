// `mfu demo`: a small transformer's launches through the real library, on the GPU if there is one, else on the
// simulated GPU that the binary carries.
#pragma once

#include <cstdint>

namespace mfu {

/// The demo's workload. The model is GPT-2 124M.
struct DemoOptions {
  double seconds = 12;     ///< half of it trains, half serves
  bool no_ranges = false;  ///< no NVTX at all
  std::int64_t train_batch = 16, train_seq_len = 1024;
  std::int64_t serve_batch = 8, prompt_len = 512, new_tokens = 128;
};

/// Runs the workload in this process through libcuda.so.1 (opened by name). Returns a process exit code; the failure
/// goes to stderr in one line.
[[nodiscard]] int run_demo_workload(const DemoOptions& options);

}  // namespace mfu
