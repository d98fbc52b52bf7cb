# The Debian package: `cmake --workflow --preset package` leaves it in build/package.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mfuinject)
set(CPACK_PACKAGE_VENDOR mfuinject)
set(CPACK_PACKAGE_CONTACT "the mfuinject authors <mfuinject@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "live MFU of an unmodified CUDA program")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"A library for the CUDA driver's injection slot, and the command mfu around it. It
reads CUPTI's activity records and NVTX ranges, and prints per region of a model's
work (training step, prefill, decode) the share of the GPU's peak that was used and
where the rest of the time went.")
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The driver and CUPTI are opened by name where they are: nothing depends on them.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/simgpu)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
include(CPack)
