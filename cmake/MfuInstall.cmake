# What `cmake --install` puts where: the library, the command, its completions and the simulated GPU; in a wheel, all
# inside the Python package. No headers: nobody links us.
include(GNUInstallDirs)
if(SKBUILD)
  set(MFU_INSTALL_BINDIR mfuinject)  # side by side: the command finds its library there
  set(MFU_INSTALL_LIBDIR mfuinject)
  set(MFU_INSTALL_DATADIR ${SKBUILD_DATA_DIR}/share)
else()
  set(MFU_INSTALL_BINDIR ${CMAKE_INSTALL_BINDIR})
  set(MFU_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
  set(MFU_INSTALL_DATADIR ${CMAKE_INSTALL_DATADIR})
endif()
if(TARGET mfuinject)
  install(TARGETS mfuinject LIBRARY DESTINATION ${MFU_INSTALL_LIBDIR})
endif()
if(TARGET mfu)
  install(TARGETS mfu RUNTIME DESTINATION ${MFU_INSTALL_BINDIR})
  # Written by the command itself, so that they name what it has.
  set(MFU_HOST_COMMAND "" CACHE FILEPATH "The same command for the processor of this machine; empty: the one that is built")
  set(command $<TARGET_FILE:mfu>)
  if(MFU_HOST_COMMAND)
    set(command ${MFU_HOST_COMMAND})
  endif()
  set(completions ${CMAKE_BINARY_DIR}/completions)
  install(CODE "
    file(MAKE_DIRECTORY \"${completions}\")
    foreach(shell bash zsh fish)
      execute_process(COMMAND \"${command}\" completion \${shell} OUTPUT_FILE \"${completions}/\${shell}\"
                      COMMAND_ERROR_IS_FATAL ANY)
    endforeach()")
  install(CODE "
    execute_process(COMMAND \"${command}\" man OUTPUT_FILE \"${completions}/mfu.1\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${completions}/mfu.1 DESTINATION ${MFU_INSTALL_DATADIR}/man/man1)
  install(FILES ${completions}/bash DESTINATION ${MFU_INSTALL_DATADIR}/bash-completion/completions RENAME mfu)
  install(FILES ${completions}/fish DESTINATION ${MFU_INSTALL_DATADIR}/fish/vendor_completions.d RENAME mfu.fish)
  # Debian's zsh looks for packages' completions elsewhere than an unpatched one.
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
    install(FILES ${completions}/zsh DESTINATION ${MFU_INSTALL_DATADIR}/zsh/vendor-completions RENAME _mfu)
  else()
    install(FILES ${completions}/zsh DESTINATION ${MFU_INSTALL_DATADIR}/zsh/site-functions RENAME _mfu)
  endif()
endif()
if(TARGET mfu AND NOT SKBUILD)  # a wheel has the whole package
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/mfuinject DESTINATION ${MFU_INSTALL_DATADIR}/mfuinject/python
          FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
endif()
if(TARGET mfu_serve)
  install(TARGETS mfu_serve LIBRARY DESTINATION ${MFU_INSTALL_LIBDIR})
endif()
set(MFU_SBOM "" CACHE FILEPATH "The bill of material of a wheel, by tools/sbom.py; empty: none")
if(SKBUILD AND MFU_SBOM)
  install(FILES ${MFU_SBOM} DESTINATION ${SKBUILD_METADATA_DIR}/sboms RENAME mfuinject.cdx.json)
endif()
if(NOT SKBUILD)
  # In a folder of its own, so that no loader ever takes its libcuda.so.1 for the driver's.
  foreach(target simgpu_cuda simgpu_cupti_12_9 simgpu_cupti_13_0)
    if(TARGET ${target})
      install(TARGETS ${target} LIBRARY DESTINATION ${MFU_INSTALL_LIBDIR}/mfu/simgpu)
    endif()
  endforeach()
  if(MFU_BUILD_KIND STREQUAL "deb")
    # When it is packed, since dpkg is asked for the versions of what was linked in.
    find_package(Python3 3.9 COMPONENTS Interpreter REQUIRED)
    set(bill ${CMAKE_BINARY_DIR}/mfuinject.cdx.json)
    install(CODE "
      execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${CMAKE_SOURCE_DIR}/tools/sbom.py\" --kind deb
                              --version \"${PROJECT_VERSION}\" --commit \"${MFU_BUILD_COMMIT}\" \"${bill}\"
                      COMMAND_ERROR_IS_FATAL ANY)")
    install(FILES ${bill} DESTINATION ${CMAKE_INSTALL_DOCDIR})
  endif()
  install(FILES README.md CHANGELOG.md NOTICE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
  install(DIRECTORY third_party/licences DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
endif()
