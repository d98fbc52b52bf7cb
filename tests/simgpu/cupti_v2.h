// Types of CUPTI 13.2's cupti_activity.h, which the headers that this is built with need not have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mfu::sim {

struct BufferRequestInfoV2 {
  std::size_t struct_size;
};
struct BufferCompleteInfoV2 {
  std::size_t struct_size;
  std::uint64_t thread_id;
  void** record_layouts;
  std::size_t layout_count;
};
using BufferRequestedV2 = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records,
                                   BufferRequestInfoV2* info);
using BufferCompletedV2 = void (*)(std::uint8_t* buffer, std::size_t size, std::size_t valid,
                                   BufferCompleteInfoV2* info);

}  // namespace mfu::sim
