# What `tests/run arm` runs of a build for aarch64, under qemu where this machine has another processor; label arm, target arm_tests.
# Every unit test, and the library in real processes over the simulated GPU. A test of tests/integration is in one of these lists,
# or the configure step fails.
set(MFU_ARM_INTEGRATION attribution bare_root busy_gpu config contract cupti_faults detected doctor entries graphs latency launch_ids
    launchers other_clients processes products replay serve supervise tail terminal_log top trace trust)
# Left out, since they say nothing of the processor:
set(MFU_ARM_LEFT_OUT
    documentation rooms                                   # they read the source
    command_line                                          # words, and completions in this machine's shells
    python_client python_package python_region            # the library in this machine's Python,
    examples recorded_outputs tensorboard                 # and its output
    report_forms report_layout report_page)               # pages, in this machine's browser
# Left out for their length: the unit tests that replay whole traces through the detector.
set(MFU_ARM_SLOW_UNIT step_phases_traces step_detector_traces pass_rows_traces)
# Those that map memory, ask for its pages, or change what may be done with them: once more as if pages had 64 KiB.
set(MFU_PAGES_UNIT activity_buffers attribution correlation_map graph_products import_patcher instance_table kernel_names product_table
    record_queue)
set(MFU_PAGES_INTEGRATION attribution)
# What threads share without a lock, over and over.
set(MFU_STRESS attribution=*ManyThreads* correlation_map=*Many* graph_products=*Beside* kernel_names=*AtOnce*
    product_table=*ThreadsThat* record_queue=*Many* stream_lanes=*ThreadsThat*)
set(MFU_STRESS_ROUNDS 20)

file(GLOB files RELATIVE ${CMAKE_CURRENT_LIST_DIR}/integration ${CMAKE_CURRENT_LIST_DIR}/integration/*_test.py)
foreach(file ${files})
  string(REGEX REPLACE "_test.py$" "" name ${file})
  if(NOT name IN_LIST MFU_ARM_INTEGRATION AND NOT name IN_LIST MFU_ARM_LEFT_OUT)
    message(FATAL_ERROR "tests/arm.cmake: does tests/integration/${file} run for aarch64, or why not?")
  endif()
endforeach()
get_property(tests DIRECTORY PROPERTY TESTS)
set(arm_tests)
foreach(test ${tests})
  if(NOT test MATCHES "^unit\\.")
    continue()
  endif()
  string(REGEX REPLACE "^unit\\." "" target ${test})
  list(APPEND arm_tests ${target})
  if(MFU_OLD_GLIBC)
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/arm/entropy.c)
  endif()
  string(REGEX REPLACE "_test$" "" name ${target})
  if(name IN_LIST MFU_ARM_SLOW_UNIT)
    set_tests_properties(${test} PROPERTIES DISABLED ON)
  endif()
  set_property(TEST ${test} APPEND PROPERTY LABELS arm)
endforeach()
if(MFU_OLD_GLIBC)
  foreach(target client_cublas client_cublasLt scenario_nvtx_v2)
    if(TARGET ${target})
      target_sources(${target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/arm/entropy.c)
    endif()
  endforeach()
endif()
if(CMAKE_CROSSCOMPILING)
  foreach(name ${MFU_PAGES_UNIT})
    if(TARGET ${name}_test)
      # qemu 7.2 hands mincore() to the kernel as it is, which then writes an entry for each 4 KiB.
      add_test(NAME pages64k.${name}_test COMMAND ${name}_test --gtest_filter=-RecordQueue.*Touch*:*Resident*)
      set_tests_properties(pages64k.${name}_test PROPERTIES LABELS arm TIMEOUT 1800 ENVIRONMENT QEMU_PAGESIZE=65536)
    endif()
  endforeach()
endif()
foreach(stress ${MFU_STRESS})
  string(REGEX MATCH "^(.*)=(.*)$" _ ${stress})
  set(name ${CMAKE_MATCH_1})
  if(TARGET ${name}_test)
    add_test(NAME stress.${name}_test COMMAND ${name}_test --gtest_repeat=${MFU_STRESS_ROUNDS} --gtest_brief=1
                                              --gtest_filter=${CMAKE_MATCH_2})
    set_tests_properties(stress.${name}_test PROPERTIES LABELS arm TIMEOUT 3600)
  endif()
endforeach()
if(TARGET simgpu)
  find_package(Python3 3.9 COMPONENTS Interpreter REQUIRED)
  get_filename_component(old_root ${MFU_OLD_GLIBC}/../root ABSOLUTE)
  set(integration ${CMAKE_CURRENT_LIST_DIR}/integration)
  set(environment MFU_BUILD_DIR=${CMAKE_BINARY_DIR} PYTHONDONTWRITEBYTECODE=1 MFU_OLD_ROOT=${old_root})
  foreach(name ${MFU_ARM_INTEGRATION})
    add_test(NAME arm.${name} COMMAND ${Python3_EXECUTABLE} ${integration}/${name}_test.py)
    set_tests_properties(arm.${name} PROPERTIES LABELS arm TIMEOUT 3600 ENVIRONMENT "${environment}")
  endforeach()
  add_test(NAME arm.simgpu COMMAND simgpu_test --gtest_filter=-Speed.*)
  set_tests_properties(arm.simgpu PROPERTIES LABELS arm TIMEOUT 3600)
  if(CMAKE_CROSSCOMPILING)
    foreach(name ${MFU_PAGES_INTEGRATION})
      add_test(NAME pages64k.${name} COMMAND ${Python3_EXECUTABLE} ${integration}/${name}_test.py)
      set_tests_properties(pages64k.${name} PROPERTIES LABELS arm TIMEOUT 3600 ENVIRONMENT "${environment};QEMU_PAGESIZE=65536")
    endforeach()
  endif()
  list(APPEND arm_tests mfu mfu_serve mfuinject clients simgpu simgpu_test simgpu_injected)
endif()
add_custom_target(arm_tests DEPENDS ${arm_tests})
