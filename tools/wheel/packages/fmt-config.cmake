set(fmt_VERSION 9.1.0)
add_library(fmt::fmt-header-only INTERFACE IMPORTED)
set_target_properties(fmt::fmt-header-only PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${MFU_WHEEL_INCLUDE}
                                                      INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
