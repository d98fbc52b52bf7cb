// The exported functions of the simulated libcuda.so.1 that have to do with memory, beside those of the demo.
#include "tools/simgpu/driver/transfers.h"

namespace {

using namespace mfu::sim;

/// CUpti_ActivityMemcpyKind of a unified address copy.
std::uint8_t copy_kind(std::uint64_t to, std::uint64_t from) noexcept {
  if (on_device(to)) return on_device(from) ? 8 : 1;
  return on_device(from) ? 2 : 9;
}

CUresult copy_rows(CUstream stream, bool per_thread, const CUDA_MEMCPY2D& c, bool wait) {
  const bool to_array = c.dstMemoryType == CU_MEMORYTYPE_ARRAY, from_array = c.srcMemoryType == CU_MEMORYTYPE_ARRAY;
  const bool to_host = c.dstMemoryType == CU_MEMORYTYPE_HOST, from_host = c.srcMemoryType == CU_MEMORYTYPE_HOST;
  std::uint64_t to = to_host ? address_of(c.dstHost) : c.dstDevice;
  std::uint64_t from = from_host ? address_of(c.srcHost) : c.srcDevice;
  const bool unified = c.dstMemoryType == CU_MEMORYTYPE_UNIFIED || c.srcMemoryType == CU_MEMORYTYPE_UNIFIED;
  std::uint8_t kind = to_host ? (from_host ? 9 : 2) : (from_host ? 1 : 8);
  if (unified) kind = copy_kind(to, from);
  to += c.dstY * c.dstPitch + c.dstXInBytes;
  from += c.srcY * c.srcPitch + c.srcXInBytes;
  return transfer(stream, per_thread, make_copy(c.WidthInBytes * c.Height, kind), wait, [&] {
    if (!to_array && !from_array && move_rows != nullptr)
      move_rows(to, c.dstPitch, from, c.srcPitch, c.WidthInBytes, c.Height);
  });
}

}  // namespace

SIM_STREAM_API(cuMemAllocAsync, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream), (dptr, bytesize, hStream),
               { return allocate(dptr, bytesize); })
SIM_STREAM_API(cuMemFreeAsync, (CUdeviceptr dptr, CUstream hStream), (dptr, hStream), { return release(dptr); })
SIM_API(cuMemAllocHost_v2, (void** pp, size_t bytesize), (pp, bytesize), { return allocate_host(pp, bytesize); })
SIM_API(cuMemHostAlloc, (void** pp, size_t bytesize, unsigned Flags), (pp, bytesize, Flags),
        { return allocate_host(pp, bytesize); })
SIM_API(cuMemFreeHost, (void* p), (p), { return release_host(p); })

SIM_SYNC_API(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), (dst, src, ByteCount),
             { return copy(nullptr, per_thread, dst, src, ByteCount, copy_kind(dst, src), true); })
SIM_SYNC_API(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void* src, size_t ByteCount), (dst, src, ByteCount),
             { return copy(nullptr, per_thread, dst, address_of(src), ByteCount, 1, true); })
SIM_SYNC_API(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), (dst, src, ByteCount),
             { return copy(nullptr, per_thread, dst, src, ByteCount, 8, false); })
SIM_STREAM_API(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
               (dst, src, ByteCount, hStream),
               { return copy(hStream, per_thread, dst, src, ByteCount, copy_kind(dst, src), false); })
SIM_STREAM_API(cuMemcpyDtoHAsync_v2, (void* dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
               (dst, src, ByteCount, hStream),
               { return copy(hStream, per_thread, address_of(dst), src, ByteCount, 2, false); })
SIM_STREAM_API(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
               (dst, src, ByteCount, hStream), { return copy(hStream, per_thread, dst, src, ByteCount, 8, false); })
SIM_STREAM_API(cuMemcpyPeerAsync,
               (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                size_t ByteCount, CUstream hStream),
               (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream),
               { return copy(hStream, per_thread, dstDevice, srcDevice, ByteCount, 10, false); })
SIM_STREAM_API(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* pCopy, CUstream hStream), (pCopy, hStream),
               { return copy_rows(hStream, per_thread, *pCopy, false); })
SIM_SYNC_API(cuMemsetD16_v2, (CUdeviceptr dst, unsigned short value, size_t N), (dst, value, N),
             { return set(nullptr, per_thread, dst, value, 2, N); })
SIM_SYNC_API(cuMemsetD32_v2, (CUdeviceptr dst, unsigned value, size_t N), (dst, value, N),
             { return set(nullptr, per_thread, dst, value, 4, N); })
SIM_STREAM_API(cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t N, CUstream hStream),
               (dst, value, N, hStream), { return set(hStream, per_thread, dst, value, 1, N); })
SIM_STREAM_API(cuMemsetD16Async, (CUdeviceptr dst, unsigned short value, size_t N, CUstream hStream),
               (dst, value, N, hStream), { return set(hStream, per_thread, dst, value, 2, N); })
SIM_STREAM_API(cuMemsetD32Async, (CUdeviceptr dst, unsigned value, size_t N, CUstream hStream),
               (dst, value, N, hStream), { return set(hStream, per_thread, dst, value, 4, N); })
