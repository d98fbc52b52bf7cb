# The simulated GPU's own tests, and the client programs that the integration tests run on it.
if(MFU_BUILD_CUDA AND MFU_BUILD_TOOLS)
  add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/frameworks/simulated)
  add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/clients)
  foreach(major 12 13)  # the runtime: the demo and the library need the driver alone
    set(SIMGPU_NODE libcudart.so.${major})
    configure_file(simgpu/runtime/libcudart.map.in ${CMAKE_CURRENT_BINARY_DIR}/libcudart-${major}.map @ONLY)
    add_library(simgpu_cudart_${major} SHARED ${CMAKE_SOURCE_DIR}/tools/simgpu/settings.cpp simgpu/switches.cpp simgpu/runtime/cudart.cpp)
    target_compile_definitions(simgpu_cudart_${major} PRIVATE SIMGPU_CUDART_MAJOR=${major})
    target_link_libraries(simgpu_cudart_${major} PRIVATE mfu_tests_headers)
    simgpu_library(simgpu_cudart_${major} libcudart.so.${major} ${CMAKE_BINARY_DIR}/simgpu ${CMAKE_CURRENT_BINARY_DIR}/libcudart-${major}.map)
    add_dependencies(simgpu simgpu_cudart_${major})
  endforeach()
  add_library(simgpu_injected MODULE ${CMAKE_CURRENT_LIST_DIR}/simgpu/injected.cpp)
  target_link_libraries(simgpu_injected PRIVATE mfu_flags)
  add_executable(simgpu_test ${CMAKE_CURRENT_LIST_DIR}/simgpu/simgpu_test.cpp)
  target_link_libraries(simgpu_test PRIVATE mfu_tests_headers mfu_simgpu_headers mfu_flags mfu_cuda_headers GTest::gtest_main Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_definitions(simgpu_test PRIVATE SIMGPU_DIR="${CMAKE_BINARY_DIR}/simgpu"
                             SIMGPU_TEST_INJECTED_LIBRARY="$<TARGET_FILE:simgpu_injected>")
  target_compile_definitions(simgpu_test PRIVATE SIMGPU_SCENARIO="$<TARGET_FILE:scenario>")
  add_dependencies(simgpu_test simgpu simgpu_injected clients)
  # Speed is a measurement, not a test: on a machine that others use it says nothing.
  add_test(NAME integration.simgpu COMMAND simgpu_test --gtest_filter=-Speed.*)
  # The tests' own client keeps its buffers for ever, and so do programs that exit with work in flight.
  set_tests_properties(integration.simgpu PROPERTIES LABELS integration TIMEOUT 1800
                       ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()
