# The CUPTI, CUDA driver and NVTX headers: from a CUDA toolkit if there is one, else from the PyPI wheels that
# tools/install-deps unpacks into .deps/. Headers only: nothing of CUDA is linked. All from one place where possible;
# a toolkit may keep CUPTI's apart from the others.
set(MFU_CUDA_INCLUDE_DIR "" CACHE PATH "Where cupti.h, cuda.h and nvtx3/ are; empty: search")
set(mfu_cuda_hints ${MFU_CUDA_INCLUDE_DIR} $ENV{CUDA_HOME}/include $ENV{CUDA_HOME}/extras/CUPTI/include
    /usr/local/cuda/include /usr/local/cuda/extras/CUPTI/include ${CMAKE_SOURCE_DIR}/.deps/nvidia/cu13/include)
find_path(MFU_CUPTI_H_DIR cupti.h HINTS ${mfu_cuda_hints})
# crt/host_defines.h comes with its own wheel: without it cuda.h is there and does not compile.
find_path(MFU_CUDA_H_DIR NAMES cuda.h HINTS ${MFU_CUPTI_H_DIR} ${mfu_cuda_hints})
find_path(MFU_CRT_H_DIR NAMES crt/host_defines.h HINTS ${MFU_CUPTI_H_DIR} ${mfu_cuda_hints})
find_path(MFU_NVTX_H_DIR NAMES nvtx3/nvToolsExt.h HINTS ${MFU_CUPTI_H_DIR} ${mfu_cuda_hints})
foreach(header CUPTI CUDA CRT NVTX)
  if(NOT MFU_${header}_H_DIR)
    message(FATAL_ERROR "the ${header} headers were not found: run tools/install-deps once (it fetches the header "
                        "wheels into .deps/), or set MFU_CUDA_INCLUDE_DIR, or configure with -DMFU_BUILD_CUDA=OFF")
  endif()
endforeach()
set(mfu_cuda_dirs ${MFU_CUPTI_H_DIR} ${MFU_CUDA_H_DIR} ${MFU_CRT_H_DIR} ${MFU_NVTX_H_DIR})
list(REMOVE_DUPLICATES mfu_cuda_dirs)
message(STATUS "CUDA headers: ${mfu_cuda_dirs}")
add_library(mfu_cuda_headers INTERFACE)
target_include_directories(mfu_cuda_headers SYSTEM INTERFACE ${mfu_cuda_dirs})
