add_library(prometheus-cpp::core STATIC IMPORTED)
set_target_properties(prometheus-cpp::core PROPERTIES IMPORTED_LOCATION ${MFU_WHEEL_PREFIX}/usr/lib/libprometheus-cpp-core.a)
