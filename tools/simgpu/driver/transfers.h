// Copies and sets on streams: their activity, and their contents where the tests add them.
#pragma once

#include "tools/simgpu/driver/driver_call.h"
#include "tools/simgpu/driver/memory.h"

namespace mfu::sim {

inline std::uint64_t address_of(const void* p) noexcept { return reinterpret_cast<std::uint64_t>(p); }

template <typename Move>
CUresult transfer(CUstream stream, bool per_thread, const Activity& work, bool wait, Move&& move) {
  return on_stream(stream, per_thread, [&](Stream& s) {
    const CUresult result = launch_transfer(s, work, wait);
    if (result == CUDA_SUCCESS && !current_call().captured) move();
    return result;
  });
}

inline CUresult copy(CUstream stream, bool per_thread, std::uint64_t to, std::uint64_t from, std::size_t bytes,
                     std::uint8_t kind, bool wait) {
  return transfer(stream, per_thread, make_copy(bytes, kind), wait, [&] {
    if (move_rows != nullptr) move_rows(to, bytes, from, bytes, bytes, 1);
  });
}

inline CUresult set(CUstream stream, bool per_thread, CUdeviceptr to, std::uint32_t value, std::size_t width,
                    std::size_t count) {
  return transfer(stream, per_thread, make_set(width * count, value), false, [&] {
    if (set_contents != nullptr) set_contents(to, value, width, count);
  });
}

}  // namespace mfu::sim
