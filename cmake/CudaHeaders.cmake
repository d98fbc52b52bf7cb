# The CUPTI, CUDA driver and NVTX headers: from a CUDA toolkit if there is one, else from the PyPI wheels that
# tools/quickstart unpacks into .deps/. Headers only: nothing of CUDA is linked.
find_path(MFU_CUDA_INCLUDE_DIR cupti.h
  HINTS ${CMAKE_SOURCE_DIR}/.deps/nvidia/cu13/include $ENV{CUDA_HOME}/include $ENV{CUDA_HOME}/extras/CUPTI/include
        /usr/local/cuda/include /usr/local/cuda/extras/CUPTI/include)
if(NOT MFU_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "cupti.h was not found: run tools/quickstart once (it fetches the header wheels into .deps/), "
                      "or set MFU_CUDA_INCLUDE_DIR, or configure with -DMFU_BUILD_CUDA=OFF")
endif()
add_library(mfu_cuda_headers INTERFACE)
target_include_directories(mfu_cuda_headers SYSTEM INTERFACE ${MFU_CUDA_INCLUDE_DIR})
