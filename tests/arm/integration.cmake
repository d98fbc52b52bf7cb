# Which tests of tests/integration `tests/run arm` runs, and which it leaves out and why. Every build reads this, so that a new test
# is in one of the lists: the configure step fails otherwise.
set(MFU_ARM_INTEGRATION attribution bare_root busy_gpu cases config contract cupti_faults detected doctor entries graphs latency launch_ids
    launchers other_clients processes products random_programs replay serve stall supervise tail terminal_log top trace trust
    untimed)
# Left out, since they say nothing of the processor:
set(MFU_ARM_LEFT_OUT
    documentation rooms                                     # they read the source
    life memory scale                                       # how time and memory grow
    command_line wrong_command_lines                        # words, and completions in this machine's shells
    collect energy idle python_client python_exit python_package python_region verdict  # the library in this machine's Python,
    examples recorded_outputs tensorboard                   # and its output
    deploy                                                  # files of deploy/ and shell scripts
    report_forms report_layout report_page)                 # pages, in this machine's browser

file(GLOB files RELATIVE ${CMAKE_CURRENT_LIST_DIR}/../integration ${CMAKE_CURRENT_LIST_DIR}/../integration/*_test.py)
foreach(file ${files})
  string(REGEX REPLACE "_test.py$" "" name ${file})
  if(NOT name IN_LIST MFU_ARM_INTEGRATION AND NOT name IN_LIST MFU_ARM_LEFT_OUT)
    message(FATAL_ERROR "tests/arm/integration.cmake: does tests/integration/${file} run for aarch64, or why not?")
  endif()
endforeach()
