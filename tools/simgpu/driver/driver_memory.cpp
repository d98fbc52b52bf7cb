// The exported functions of the simulated libcuda.so.1 that have to do with memory.
#include "tools/simgpu/driver/driver_call.h"
#include "tools/simgpu/driver/memory.h"
#include "tools/simgpu/driver/transfers.h"

using namespace mfu::sim;

// Allocation -----------------------------------------------------------------------------------------------------

SIM_API(cuMemAlloc_v2, (CUdeviceptr * dptr, size_t bytesize), (dptr, bytesize), { return allocate(dptr, bytesize); })
SIM_API(cuMemFree_v2, (CUdeviceptr dptr), (dptr), { return release(dptr); })
// Copies and sets ------------------------------------------------------------------------------------------------

SIM_SYNC_API(cuMemcpyDtoH_v2, (void* dst, CUdeviceptr src, size_t ByteCount), (dst, src, ByteCount),
             { return copy(nullptr, per_thread, address_of(dst), src, ByteCount, 2, true); })
SIM_STREAM_API(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void* src, size_t ByteCount, CUstream hStream),
               (dst, src, ByteCount, hStream),
               { return copy(hStream, per_thread, dst, address_of(src), ByteCount, 1, false); })
SIM_SYNC_API(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char value, size_t N), (dst, value, N),
             { return set(nullptr, per_thread, dst, value, 1, N); })
