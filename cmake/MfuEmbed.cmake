# Files that are built into a program as they are.

# Writes a source file into `variable` with one function per pair NAME=PATH:
# `std::string_view mfu::embedded_NAME() noexcept`, the bytes of that file; a NUL follows them.
function(mfu_embed variable)
  set(files)
  set(calls)
  foreach(pair ${ARGN})
    string(REGEX MATCH "^([^=]*)=(.*)$" _ ${pair})
    list(APPEND files ${CMAKE_MATCH_2})
    string(APPEND calls "EMBED(${CMAKE_MATCH_1}, \"${CMAKE_MATCH_2}\")\n")
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${variable}.cpp)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded.cpp.in ${source} @ONLY)
  # Alone: compiled together with other files, its object would not depend on what it embeds.
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON OBJECT_DEPENDS "${files}")
  set(${variable} ${source} PARENT_SCOPE)
endfunction()
