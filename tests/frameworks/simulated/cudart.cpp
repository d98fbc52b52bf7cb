// Functions of CUDA 13's runtime that frameworks call and small programs do not.
#include <cuda_runtime_api.h>

#if CUDART_VERSION >= 13000 && SIMGPU_CUDART_MAJOR >= 13
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

#include "tests/simgpu/runtime/cudart_call.h"

namespace {
using namespace mfu::sim;

int device_attribute(CUdevice_attribute attribute, int device) {
  int value = 0;
  DRIVER(cuDeviceGetAttribute)(&value, attribute, device);
  return value;
}

CUresult fill_properties(cudaDeviceProp* p, int device) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memset(p, 0, sizeof *p);
  if (const CUresult r = DRIVER(cuDeviceGetName)(p->name, sizeof p->name, device); r != CUDA_SUCCESS) return r;
  CUuuid uuid{};
  DRIVER(cuDeviceGetUuid)(&uuid, device);
  static_assert(sizeof p->uuid == sizeof uuid);
  std::memcpy(&p->uuid, &uuid, sizeof uuid);
  DRIVER(cuDeviceTotalMem)(&p->totalGlobalMem, device);
  const auto get = [&](CUdevice_attribute a) { return device_attribute(a, device); };
  p->sharedMemPerBlock = static_cast<std::size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
  p->sharedMemPerBlockOptin = static_cast<std::size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  p->sharedMemPerMultiprocessor =
      static_cast<std::size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  p->reservedSharedMemPerBlock = static_cast<std::size_t>(get(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
  p->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  p->regsPerMultiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  p->warpSize = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  p->memPitch = static_cast<std::size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_PITCH));
  p->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  p->maxThreadsPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  p->maxBlocksPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  p->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  p->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  p->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  p->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  p->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  p->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  p->totalConstMem = static_cast<std::size_t>(get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY));
  p->textureAlignment = static_cast<std::size_t>(get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT));
  p->major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  p->minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  p->multiProcessorCount = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  p->memoryBusWidth = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  p->l2CacheSize = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  p->pciBusID = get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  p->asyncEngineCount = get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  p->clusterLaunch = get(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
  p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = p->managedMemory = p->cooperativeLaunch = 1;
  p->hostRegisterSupported = p->memoryPoolsSupported = p->computePreemptionSupported = 1;
  p->hostNumaId = -1;
  return CUDA_SUCCESS;
}

CUresult active_blocks(int* blocks, const void* func, int block_size, std::size_t shared) {
  CUfunction f = nullptr;
  if (const CUresult r = function_for(func, &f); r != CUDA_SUCCESS) return r;
  return DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(blocks, f, block_size, shared);
}

/// The device memory behind a __device__ variable.
CUresult variable_address(CUdeviceptr* out, const void* symbol) {
  const std::lock_guard lock(registry().mutex);
  const auto it = registry().variables.find(symbol);
  if (it == registry().variables.end()) return static_cast<CUresult>(cudaErrorInvalidSymbol);
  if (it->second.address == 0) {
    const std::size_t bytes = std::max<std::size_t>(it->second.bytes, 1);
    if (const CUresult r = DRIVER(cuMemAlloc)(&it->second.address, bytes); r != CUDA_SUCCESS) return r;
  }
  *out = it->second.address;
  return CUDA_SUCCESS;
}

/// The arguments that `kernel<<<grid, block, shared, stream>>>` leaves on its thread until the host stub picks it up.
struct Configuration {
  unsigned grid[3], block[3];
  std::size_t shared;
  void* stream;
};
struct Configurations {  // trivially destructible: programs launch while they exit
  Configuration last[8];
  std::size_t depth;
};
thread_local Configurations configurations{};

struct UserObject {
  void* data;
  cudaHostFn_t destroy;
  unsigned references;
};

struct StreamCallback {
  cudaStream_t stream;
  cudaStreamCallback_t callback;
  void* data;
};

/// In place of every driver function that this driver lacks: the answer of a real one whose device cannot do it.
CUresult not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

// Launches by code that nvcc 13 compiled -------------------------------------------------------------------------

SIM_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  if (configurations.depth == std::size(configurations.last)) return 1;
  configurations.last[configurations.depth++] = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream};
  return 0;
}
SIM_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.depth == 0) return cudaErrorMissingConfiguration;
  const Configuration& c = configurations.last[--configurations.depth];
  *grid = dim3(c.grid[0], c.grid[1], c.grid[2]);
  *block = dim3(c.block[0], c.block[1], c.block[2]);
  *shared = c.shared;
  *static_cast<void**>(stream) = c.stream;
  return cudaSuccess;
}
/// The host stub itself is the handle: the kernel is looked for when it is launched.
SIM_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
SIM_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared,
                                          cudaStream_t stream) {
  const void* func = reinterpret_cast<const void*>(kernel);
  constexpr auto kId = CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000;
  return call_with_kernel(kId, "__cudaLaunchKernel", func, [&](CUfunction f) {
    return DRIVER(cuLaunchKernel)(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, static_cast<unsigned>(shared),
                                  stream, args, nullptr);
  });
}

// Devices --------------------------------------------------------------------------------------------------------

SIM_RUNTIME_QUERY(cudaGetDeviceProperties, 12000, (cudaDeviceProp * prop, int device),
                  { return fill_properties(prop, device); })
SIM_RUNTIME_QUERY(cudaDeviceGetPCIBusId, 4010, (char* id, int length, int device),
                  { return DRIVER(cuDeviceGetPCIBusId)(id, length, device); })
SIM_RUNTIME(cudaDeviceGetStreamPriorityRange, 5050, (int* least, int* greatest),
            { return DRIVER(cuCtxGetStreamPriorityRange)(least, greatest); })
SIM_RUNTIME(cudaDeviceCanAccessPeer, 4000, (int* can, int device, int peer),
            { return DRIVER(cuDeviceCanAccessPeer)(can, device, peer); })
SIM_RUNTIME(cudaDeviceEnablePeerAccess, 4000, (int, unsigned), { return CUDA_SUCCESS; })
SIM_RUNTIME(cudaDeviceGetGraphMemAttribute, 11040, (int, cudaGraphMemAttributeType, void* value), {
  std::memset(value, 0, sizeof(std::uint64_t));  // no graph of this driver allocates memory
  return CUDA_SUCCESS;
})
SIM_RUNTIME(cudaDeviceSetGraphMemAttribute, 11040, (int, cudaGraphMemAttributeType, void*), { return CUDA_SUCCESS; })
SIM_RUNTIME_QUERY(cudaGetDriverEntryPointByVersion, 12050,
                  (const char* symbol, void** function, unsigned version, unsigned long long flags,
                   cudaDriverEntryPointQueryResult* status),
                  {
                    CUdriverProcAddressQueryResult answer{};
                    DRIVER(cuGetProcAddress)(symbol, function, static_cast<int>(version), flags, &answer);
                    if (*function == nullptr && std::strncmp(symbol, "cu", 2) == 0)
                      *function = reinterpret_cast<void*>(&not_supported);
                    if (status != nullptr) *status = cudaDriverEntryPointSuccess;
                    return CUDA_SUCCESS;
                  })
SIM_RUNTIME(cudaProfilerStart, 4000, (), { return CUDA_SUCCESS; })
SIM_RUNTIME(cudaProfilerStop, 4000, (), { return CUDA_SUCCESS; })

// Memory ---------------------------------------------------------------------------------------------------------

SIM_RUNTIME(cudaMemGetInfo, 3020, (size_t * free, size_t* total), { return DRIVER(cuMemGetInfo)(free, total); })
SIM_RUNTIME(cudaMallocAsync, 11020, (void** p, size_t bytes, cudaStream_t stream),
            { return DRIVER(cuMemAllocAsync)(reinterpret_cast<CUdeviceptr*>(p), bytes, stream); })
SIM_RUNTIME(cudaFreeAsync, 11020, (void* p, cudaStream_t stream),
            { return DRIVER(cuMemFreeAsync)(device_pointer(p), stream); })
SIM_RUNTIME(cudaMallocHost, 3020, (void** p, size_t bytes), { return DRIVER(cuMemAllocHost)(p, bytes); })
SIM_RUNTIME(cudaHostAlloc, 3020, (void** p, size_t bytes, unsigned flags),
            { return DRIVER(cuMemHostAlloc)(p, bytes, flags); })
SIM_RUNTIME(cudaFreeHost, 3020, (void* p), { return DRIVER(cuMemFreeHost)(p); })
SIM_RUNTIME(cudaHostRegister, 4000, (void* p, size_t bytes, unsigned flags),
            { return DRIVER(cuMemHostRegister)(p, bytes, flags); })
SIM_RUNTIME(cudaHostUnregister, 4000, (void* p), { return DRIVER(cuMemHostUnregister)(p); })
SIM_RUNTIME(cudaHostGetDevicePointer, 3020, (void** device, void* host, unsigned flags),
            { return DRIVER(cuMemHostGetDevicePointer)(reinterpret_cast<CUdeviceptr*>(device), host, flags); })
SIM_RUNTIME(cudaPointerGetAttributes, 4000, (cudaPointerAttributes * attributes, const void* p), {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->hostPointer = const_cast<void*>(p);
  attributes->device = -2;  // cudaInvalidDeviceId
  unsigned type = 0;
  if (DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_pointer(p)) != CUDA_SUCCESS) {
    return CUDA_SUCCESS;  // cudaMemoryTypeUnregistered
  }
  const bool device_memory = type == CU_MEMORYTYPE_DEVICE;
  attributes->type = device_memory ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->devicePointer = const_cast<void*>(p);
  if (device_memory) attributes->hostPointer = nullptr;
  return DRIVER(cuPointerGetAttribute)(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, device_pointer(p));
})
SIM_RUNTIME(cudaMemcpy2DAsync, 3020,
            (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
             cudaMemcpyKind, cudaStream_t stream),
            {
              CUDA_MEMCPY2D c{};
              c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
              c.srcDevice = device_pointer(from);
              c.dstDevice = device_pointer(to);
              c.srcPitch = from_pitch;
              c.dstPitch = to_pitch;
              c.WidthInBytes = width;
              c.Height = height;
              return DRIVER(cuMemcpy2DAsync)(&c, stream);
            })
SIM_RUNTIME(cudaMemcpyPeerAsync, 4000, (void* to, int, const void* from, int, size_t bytes, cudaStream_t stream), {
  return DRIVER(cuMemcpyPeerAsync)(device_pointer(to), nullptr, device_pointer(from), nullptr, bytes, stream);
})
SIM_RUNTIME(cudaGetSymbolAddress, 3020, (void** p, const void* symbol),
            { return variable_address(reinterpret_cast<CUdeviceptr*>(p), symbol); })
SIM_RUNTIME(cudaMemcpyToSymbol, 3020,
            (const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind), {
              CUdeviceptr at = 0;
              if (const CUresult r = variable_address(&at, symbol); r != CUDA_SUCCESS) return r;
              return DRIVER(cuMemcpyHtoD)(at + offset, from, bytes);
            })
SIM_RUNTIME(cudaDeviceGetDefaultMemPool, 11020, (cudaMemPool_t * pool, int device), {
  *pool = reinterpret_cast<cudaMemPool_t>(static_cast<std::uintptr_t>(device) + 1);  // a name, never looked into
  return CUDA_SUCCESS;
})
SIM_RUNTIME(cudaMemPoolSetAttribute, 11020, (cudaMemPool_t, cudaMemPoolAttr, void*), { return CUDA_SUCCESS; })
SIM_RUNTIME(cudaMemPoolGetAttribute, 11020, (cudaMemPool_t, cudaMemPoolAttr, void* value), {
  std::memset(value, 0, sizeof(std::uint64_t));
  return CUDA_SUCCESS;
})
SIM_RUNTIME(cudaMemPoolTrimTo, 11020, (cudaMemPool_t, size_t), { return CUDA_SUCCESS; })
SIM_RUNTIME(cudaMemPoolSetAccess, 11020, (cudaMemPool_t, const cudaMemAccessDesc*, size_t), { return CUDA_SUCCESS; })

// Kernels --------------------------------------------------------------------------------------------------------

SIM_RUNTIME(cudaFuncGetAttributes, 3020, (cudaFuncAttributes * attributes, const void* func), {
  CUfunction f = nullptr;
  if (const CUresult r = function_for(func, &f); r != CUDA_SUCCESS) return r;
  std::memset(attributes, 0, sizeof *attributes);
  const int version = 10 * device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, current_device) +
                      device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, current_device);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = version;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return CUDA_SUCCESS;
})
SIM_RUNTIME(cudaFuncSetAttribute, 9000, (const void* func, cudaFuncAttribute, int), {
  CUfunction f = nullptr;
  return function_for(func, &f);
})
SIM_RUNTIME(cudaFuncGetName, 12030, (const char** name, const void* func), {
  *name = symbol_for(func);
  return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
})
SIM_RUNTIME(cudaGetFuncBySymbol, 11000, (cudaFunction_t * function, const void* func),
            { return function_for(func, reinterpret_cast<CUfunction*>(function)); })
SIM_RUNTIME(cudaKernelSetAttributeForDevice, 12060, (cudaKernel_t, cudaFuncAttribute, int, int),
            { return CUDA_SUCCESS; })
SIM_RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessor, 6050,
            (int* blocks, const void* func, int block_size, size_t shared),
            { return active_blocks(blocks, func, block_size, shared); })
SIM_RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,
            (int* blocks, const void* func, int block_size, size_t shared, unsigned),
            { return active_blocks(blocks, func, block_size, shared); })
SIM_RUNTIME(cudaOccupancyMaxActiveClusters, 11070, (int* clusters, const void* func, const cudaLaunchConfig_t*), {
  CUfunction f = nullptr;
  if (const CUresult r = function_for(func, &f); r != CUDA_SUCCESS) return r;
  *clusters = device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, current_device) / 2;
  return CUDA_SUCCESS;
})
SIM_RUNTIME(cudaLibraryLoadData, 12060,
            (cudaLibrary_t * library, const void* code, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**,
             unsigned),
            {
              return DRIVER(cuLibraryLoadData)(reinterpret_cast<CUlibrary*>(library), code, nullptr, nullptr, 0,
                                               nullptr, nullptr, 0);
            })
SIM_RUNTIME(cudaLibraryUnload, 12060, (cudaLibrary_t library),
            { return DRIVER(cuLibraryUnload)(reinterpret_cast<CUlibrary>(library)); })
SIM_RUNTIME(cudaLibraryGetKernel, 12060, (cudaKernel_t * kernel, cudaLibrary_t library, const char* name), {
  return DRIVER(cuLibraryGetKernel)(reinterpret_cast<CUkernel*>(kernel), reinterpret_cast<CUlibrary>(library), name);
})
SIM_RUNTIME(cudaLibraryGetGlobal, 12060, (void** p, size_t* bytes, cudaLibrary_t library, const char* name), {
  return DRIVER(cuLibraryGetGlobal)(reinterpret_cast<CUdeviceptr*>(p), bytes, reinterpret_cast<CUlibrary>(library),
                                    name);
})

// Streams and events ---------------------------------------------------------------------------------------------

SIM_RUNTIME(cudaStreamCreateWithPriority, 5050, (cudaStream_t * stream, unsigned flags, int priority),
            { return DRIVER(cuStreamCreateWithPriority)(stream, flags, priority); })
SIM_RUNTIME(cudaStreamGetPriority, 5050, (cudaStream_t stream, int* priority),
            { return DRIVER(cuStreamGetPriority)(stream, priority); })
SIM_RUNTIME(cudaStreamQuery, 3020, (cudaStream_t stream), { return DRIVER(cuStreamQuery)(stream); })
SIM_RUNTIME(cudaStreamAddCallback, 5000, (cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned), {
  const auto run = [](void* raw) {
    const std::unique_ptr<StreamCallback> c(static_cast<StreamCallback*>(raw));
    c->callback(c->stream, cudaSuccess, c->data);
  };
  return DRIVER(cuLaunchHostFunc)(stream, run, new StreamCallback{stream, callback, data});
})
SIM_RUNTIME(cudaLaunchHostFunc, 10000, (cudaStream_t stream, cudaHostFn_t function, void* data),
            { return DRIVER(cuLaunchHostFunc)(stream, function, data); })
SIM_RUNTIME(cudaEventRecordWithFlags, 11010, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
            { return DRIVER(cuEventRecordWithFlags)(event, stream, flags); })
SIM_RUNTIME(cudaEventElapsedTime, 3020, (float* ms, cudaEvent_t start, cudaEvent_t end),
            { return DRIVER(cuEventElapsedTime)(ms, start, end); })

// Graphs ---------------------------------------------------------------------------------------------------------

SIM_RUNTIME(cudaStreamIsCapturing, 10000, (cudaStream_t stream, cudaStreamCaptureStatus* status),
            { return DRIVER(cuStreamIsCapturing)(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)); })
SIM_RUNTIME(cudaStreamGetCaptureInfo, 12030,
            (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
             const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges, size_t* count),
            {
              cuuint64_t number = 0;
              if (edges != nullptr) *edges = nullptr;
              const CUresult r =
                  DRIVER(cuStreamGetCaptureInfo)(stream, reinterpret_cast<CUstreamCaptureStatus*>(status), &number,
                                                 graph, dependencies, nullptr, count);
              if (id != nullptr) *id = number;
              return r;
            })
SIM_RUNTIME(cudaThreadExchangeStreamCaptureMode, 10010, (cudaStreamCaptureMode * mode),
            { return DRIVER(cuThreadExchangeStreamCaptureMode)(reinterpret_cast<CUstreamCaptureMode*>(mode)); })
SIM_RUNTIME(cudaGraphGetNodes, 10000, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count),
            { return DRIVER(cuGraphGetNodes)(graph, nodes, count); })
SIM_RUNTIME(cudaGraphUpload, 10000, (cudaGraphExec_t exec, cudaStream_t stream),
            { return DRIVER(cuGraphUpload)(exec, stream); })
SIM_RUNTIME(cudaUserObjectCreate, 11030,
            (cudaUserObject_t * out, void* data, cudaHostFn_t destroy, unsigned references, unsigned), {
              *out = reinterpret_cast<cudaUserObject_t>(new UserObject{data, destroy, references});
              return CUDA_SUCCESS;
            })
SIM_RUNTIME(cudaUserObjectRelease, 11030, (cudaUserObject_t object, unsigned count), {
  auto* o = reinterpret_cast<UserObject*>(object);
  o->references -= std::min(count, o->references);
  if (o->references == 0) {
    o->destroy(o->data);
    delete o;
  }
  return CUDA_SUCCESS;
})
/// The graph's references are never given back: their objects live until the process ends.
SIM_RUNTIME(cudaGraphRetainUserObject, 11030, (cudaGraph_t, cudaUserObject_t object, unsigned count, unsigned flags), {
  if ((flags & cudaGraphUserObjectMove) == 0) reinterpret_cast<UserObject*>(object)->references += count;
  return CUDA_SUCCESS;
})

#endif
