add_library(simdjson::simdjson STATIC IMPORTED)
set_target_properties(simdjson::simdjson PROPERTIES IMPORTED_LOCATION ${MFU_WHEEL_PREFIX}/usr/lib/libsimdjson.a)
