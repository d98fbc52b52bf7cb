// The exported functions of the simulated libcuda.so.1 that frameworks ask before they launch: occupancy, limits,
// tensor maps, globals, and what a capturing stream depends on.
#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/driver_call.h"
#include "tools/simgpu/driver/memory.h"

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

SIM_STREAM_API(cuStreamGetCaptureInfo_v3,
               (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out, CUgraph* graph_out,
                const CUgraphNode** dependencies_out, const CUgraphEdgeData** edgeData_out,
                size_t* numDependencies_out),
               (hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out), {
                 if (edgeData_out != nullptr) *edgeData_out = nullptr;  // plain dependencies only
                 return capture_info(hStream, per_thread, captureStatus_out, id_out, graph_out, dependencies_out,
                                     numDependencies_out);
               })
