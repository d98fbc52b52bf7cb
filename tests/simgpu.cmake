# The simulated GPU's own tests, and the client programs that the integration tests run on it.
if(MFU_BUILD_CUDA AND MFU_BUILD_TOOLS)
  add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/clients)
endif()
