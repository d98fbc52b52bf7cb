# What `cmake --install` puts where: the library, the command and the simulated GPU. No headers: nobody links us.
include(GNUInstallDirs)
if(TARGET mfuinject)
  install(TARGETS mfuinject LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET mfu)
  install(TARGETS mfu RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# In a folder of its own, so that no loader ever takes its libcuda.so.1 for the driver's.
foreach(target simcuda simcupti simnvml)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/mfu/simgpu)
  endif()
endforeach()
