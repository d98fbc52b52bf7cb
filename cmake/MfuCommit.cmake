# The commit that is built, for `mfu --version` and the start line. In builds without tests, which are those for packages:
# with tests every commit would link all of them again. An archive without .git sets MFU_COMMIT by hand.
set(MFU_COMMIT "" CACHE STRING "Commit of the source, where git does not say")
set(commit "${MFU_COMMIT}")
set(MFU_BUILD_KIND "" CACHE STRING "The package that this build is for, as `mfu --version` tells it; empty: none")
find_package(Git QUIET)
if(NOT commit AND NOT MFU_BUILD_TESTS AND GIT_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} diff --quiet HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} RESULT_VARIABLE dirty
                  ERROR_QUIET)
  if(commit AND dirty)
    string(APPEND commit "-dirty")
  endif()
  # A commit is made: configure again, so that the next build knows it.
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                  OUTPUT_VARIABLE log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  get_filename_component(log "${log}" ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  if(EXISTS ${log})
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log})
  endif()
endif()
set(MFU_BUILD_COMMIT "${commit}")
