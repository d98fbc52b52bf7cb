// The exported functions of the simulated libcuda.so.1 that frameworks ask before they launch: occupancy, limits,
// tensor maps, globals, and what a capturing stream depends on.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tools/simgpu/driver/driver_call.h"
#include "tools/simgpu/driver/transfers.h"

namespace {

using namespace mfu::sim;

/// Blocks of one kernel that an SM holds at once: by threads alone (2,048 per SM, at most 32 blocks), since registers
/// and shared memory of a kernel are not known here.
CUresult active_blocks(int* blocks, CUfunction function, int block_size) {
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (function_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = std::clamp(2048 / block_size, 1, 32);
  return CUDA_SUCCESS;
}

/// A global of a module: its size is not known, so every one gets memory enough for a table.
CUresult find_global(CUdeviceptr* address, std::size_t* bytes, Module* module, const char* name) {
  constexpr std::size_t kGlobalBytes = 1 << 16;
  if (module == nullptr || module->magic != Magic::kModule || name == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!module->any_name) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock(module->mutex);
  CUdeviceptr& at = module->globals[name];
  if (at == 0) {
    if (const CUresult r = allocate(&at, kGlobalBytes); r != CUDA_SUCCESS) return r;
  }
  if (address != nullptr) *address = at;
  if (bytes != nullptr) *bytes = kGlobalBytes;
  return CUDA_SUCCESS;
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, std::uint64_t address) {
  PointerInfo info;
  if (data == nullptr || !pointer_info(address, &info)) return CUDA_ERROR_INVALID_VALUE;
  const auto answer = [&](auto value) {
    std::memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const Device* device = device_at(info.ordinal);
      return answer(reinterpret_cast<std::uintptr_t>(device == nullptr ? nullptr : device->primary));
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return answer(static_cast<unsigned>(info.device_memory ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return answer(address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return info.device_memory ? CUDA_ERROR_INVALID_VALUE : answer(address);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return answer(info.ordinal);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return answer(info.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return answer(info.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return answer(1);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return answer(0);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
        (int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize),
        (numBlocks, func, blockSize, dynamicSMemSize), { return active_blocks(numBlocks, func, blockSize); })
SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned flags),
        (numBlocks, func, blockSize, dynamicSMemSize, flags), { return active_blocks(numBlocks, func, blockSize); })
SIM_API(cuOccupancyMaxActiveClusters, (int* numClusters, CUfunction func, const CUlaunchConfig* config),
        (numClusters, func, config), {
          const Context* context = current_context();
          if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
          if (numClusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
          unsigned cluster = 1;
          for (unsigned i = 0; i < config->numAttrs; ++i) {
            const CUlaunchAttribute& a = config->attrs[i];
            if (a.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
            cluster = a.value.clusterDim.x * a.value.clusterDim.y * a.value.clusterDim.z;
          }
          *numClusters = static_cast<int>(context->device->spec->sm_count / std::max(cluster, 1u));
          return CUDA_SUCCESS;
        })

SIM_API(cuTensorMapEncodeTiled,
        (CUtensorMap * tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank, void* globalAddress,
         const cuuint64_t* globalDim, const cuuint64_t* globalStrides, const cuuint32_t* boxDim,
         const cuuint32_t* elementStrides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
         CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill),
        (tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, boxDim, elementStrides,
         interleave, swizzle, l2Promotion, oobFill),
        {
          if (tensorMap == nullptr || tensorRank == 0 || tensorRank > 5) return CUDA_ERROR_INVALID_VALUE;
          std::memset(tensorMap, 0, sizeof *tensorMap);  // only kernels read it
          return CUDA_SUCCESS;
        })

SIM_API(cuFuncSetCacheConfig, (CUfunction hfunc, CUfunc_cache config), (hfunc, config),
        { return function_of(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; })
SIM_API(cuFuncGetModule, (CUmodule * hmod, CUfunction hfunc), (hmod, hfunc), {
  const Function* function = function_of(hfunc);
  if (function == nullptr || hmod == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *hmod = reinterpret_cast<CUmodule>(function->module);
  return CUDA_SUCCESS;
})
SIM_API(cuKernelSetAttribute, (CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev),
        (attrib, val, kernel, dev),
        { return function_of(kernel) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; })
SIM_API(cuModuleGetGlobal_v2, (CUdeviceptr * dptr, size_t* bytes, CUmodule hmod, const char* name),
        (dptr, bytes, hmod, name), { return find_global(dptr, bytes, reinterpret_cast<Module*>(hmod), name); })
SIM_API(cuLibraryGetGlobal, (CUdeviceptr * dptr, size_t* bytes, CUlibrary library, const char* name),
        (dptr, bytes, library, name), { return find_global(dptr, bytes, reinterpret_cast<Module*>(library), name); })

SIM_API(cuCtxGetFlags, (unsigned* flags), (flags), {
  const Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *flags = context->flags;
  return CUDA_SUCCESS;
})
SIM_API(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value),
        { return current_context() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; })
SIM_API(cuCtxGetLimit, (size_t * pvalue, CUlimit limit), (pvalue, limit), {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *pvalue = limit == CU_LIMIT_STACK_SIZE ? 1024 : 8u << 20;
  return CUDA_SUCCESS;
})

// Devices, contexts, streams, functions -------------------------------------------------------------------------

SIM_API(cuDeviceCanAccessPeer, (int* can, CUdevice dev, CUdevice peer), (can, dev, peer), {
  if (device_at(dev) == nullptr || device_at(peer) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *can = dev != peer ? 1 : 0;
  return CUDA_SUCCESS;
})
SIM_API(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned* flags, int* active), (dev, flags, active), {
  const Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
})
SIM_API(cuCtxGetStreamPriorityRange, (int* least, int* greatest), (least, greatest), {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
})
SIM_API(cuCtxGetApiVersion, (CUcontext ctx, unsigned* version), (ctx, version), {
  *version = 3020;
  return CUDA_SUCCESS;
})
SIM_API(cuCtxEnablePeerAccess, (CUcontext peerContext, unsigned Flags), (peerContext, Flags), { return CUDA_SUCCESS; })
SIM_STREAM_API(cuStreamGetPriority, (CUstream hStream, int* priority), (hStream, priority), {
  return on_stream(hStream, per_thread, [&](Stream& s) { return *priority = s.priority, CUDA_SUCCESS; });
})
SIM_STREAM_API(cuStreamGetFlags, (CUstream hStream, unsigned* flags), (hStream, flags),
               { return on_stream(hStream, per_thread, [&](Stream& s) { return *flags = s.flags, CUDA_SUCCESS; }); })
SIM_STREAM_API(cuStreamGetCtx, (CUstream hStream, CUcontext* pctx), (hStream, pctx), {
  return on_stream(hStream, per_thread,
                   [&](Stream& s) { return *pctx = reinterpret_cast<CUcontext>(s.context), CUDA_SUCCESS; });
})
SIM_STREAM_API(cuStreamGetId, (CUstream hStream, unsigned long long* streamId), (hStream, streamId),
               { return on_stream(hStream, per_thread, [&](Stream& s) { return *streamId = s.id, CUDA_SUCCESS; }); })
SIM_API(cuFuncGetAttribute, (int* pi, CUfunction_attribute attrib, CUfunction hfunc), (pi, attrib, hfunc), {
  if (function_of(hfunc) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pi = attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
})
SIM_API(cuFuncSetAttribute, (CUfunction hfunc, CUfunction_attribute attrib, int value), (hfunc, attrib, value),
        { return function_of(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; })

SIM_API(cuModuleLoadFatBinary, (CUmodule * module, const void* fatCubin), (module, fatCubin),
        { return load_module(reinterpret_cast<Module**>(module), fatCubin); })
SIM_API(cuLibraryLoadData,
        (CUlibrary * library, const void* code, CUjit_option* jitOptions, void** jitOptionsValues,
         unsigned numJitOptions, CUlibraryOption* libraryOptions, void** libraryOptionValues,
         unsigned numLibraryOptions),
        (library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
         numLibraryOptions),
        { return load_module(reinterpret_cast<Module**>(library), code); })
SIM_API(cuLibraryGetKernel, (CUkernel * pKernel, CUlibrary library, const char* name), (pKernel, library, name),
        { return find_function(reinterpret_cast<Function**>(pKernel), reinterpret_cast<Module*>(library), name); })
SIM_API(cuLibraryGetModule, (CUmodule * pMod, CUlibrary library), (pMod, library), {
  *pMod = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
})
SIM_API(cuKernelGetFunction, (CUfunction * pFunc, CUkernel kernel), (pFunc, kernel), {
  if (function_of(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pFunc = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
})
SIM_API(cuFuncGetName, (const char** name, CUfunction hfunc), (name, hfunc), {
  const Function* function = function_of(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name;
  return CUDA_SUCCESS;
})

// Memory ---------------------------------------------------------------------------------------------------------

SIM_API(cuMemHostRegister_v2, (void* p, size_t bytesize, unsigned Flags), (p, bytesize, Flags),
        { return register_host(p, bytesize); })
SIM_API(cuMemHostUnregister, (void* p), (p), { return unregister_host(p); })
SIM_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * pdptr, void* p, unsigned Flags), (pdptr, p, Flags), {
  PointerInfo info;
  if (pdptr == nullptr || !pointer_info(address_of(p), &info)) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = address_of(p);  // unified addressing
  return CUDA_SUCCESS;
})
SIM_API(cuMemGetAddressRange_v2, (CUdeviceptr * pbase, size_t* psize, CUdeviceptr dptr), (pbase, psize, dptr), {
  PointerInfo info;
  if (!pointer_info(dptr, &info) || !info.device_memory) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = info.begin;
  if (psize != nullptr) *psize = info.bytes;
  return CUDA_SUCCESS;
})
SIM_API(cuPointerGetAttribute, (void* data, CUpointer_attribute attribute, CUdeviceptr ptr), (data, attribute, ptr),
        { return pointer_attribute(data, attribute, ptr); })
SIM_API(cuPointerGetAttributes, (unsigned numAttributes, CUpointer_attribute* attributes, void** data, CUdeviceptr ptr),
        (numAttributes, attributes, data, ptr), {
          // Unlike the singular form this one succeeds for memory that was never allocated: the answers are then zeros.
          for (unsigned i = 0; i < numAttributes; ++i) {
            if (pointer_attribute(data[i], attributes[i], ptr) != CUDA_SUCCESS) std::memset(data[i], 0, sizeof(int));
          }
          return CUDA_SUCCESS;
        })

// Virtual memory: addresses are taken, and counted as memory, when they are reserved; what is mapped there is not
// looked at.
SIM_API(cuMemAddressReserve,
        (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags),
        (ptr, size, alignment, addr, flags), { return allocate(ptr, size); })
SIM_API(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size), { return release(ptr); })
SIM_API(cuMemCreate,
        (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp* prop, unsigned long long flags),
        (handle, size, prop, flags), {
          static std::atomic<unsigned long long> next{1};
          if (handle == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
          *handle = next.fetch_add(1);
          return CUDA_SUCCESS;
        })
SIM_API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle), { return CUDA_SUCCESS; })
SIM_API(cuMemMap,
        (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
        (ptr, size, offset, handle, flags), { return on_device(ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; })
SIM_API(cuMemUnmap, (CUdeviceptr ptr, size_t size), (ptr, size),
        { return on_device(ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; })
SIM_API(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count),
        (ptr, size, desc, count), { return on_device(ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; })
SIM_API(cuMemGetAllocationGranularity,
        (size_t * granularity, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option),
        (granularity, prop, option), {
          if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
          *granularity = 2u << 20;
          return CUDA_SUCCESS;
        })
