# {fmt}, compiled once (core/base/format_library.cpp) instead of in each of the forty files that format: that is two to three
# seconds of gcc 12 a file. Linked in: the host may lack its library, and distributions have no static one. That file knows
# the functions of {fmt} 9; other versions are taken header-only.
find_package(fmt REQUIRED)
add_library(mfu_fmt INTERFACE)
get_target_property(mfu_fmt_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(mfu_fmt SYSTEM INTERFACE ${mfu_fmt_include})
if(fmt_VERSION VERSION_LESS 9 OR NOT fmt_VERSION VERSION_LESS 10)
  target_compile_definitions(mfu_fmt INTERFACE FMT_HEADER_ONLY=1)
endif()
