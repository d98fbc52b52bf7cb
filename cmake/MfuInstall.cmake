# What `cmake --install` puts where: the library, the command and the simulated GPU. No headers: nobody links us.
include(GNUInstallDirs)
if(TARGET mfuinject)
  install(TARGETS mfuinject LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET mfu)
  install(TARGETS mfu RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# In a folder of its own, so that no loader ever takes its libcuda.so.1 for the driver's.
foreach(target simgpu_cuda simgpu_nvml simgpu_cudart_12 simgpu_cudart_13 simgpu_cupti_12_9 simgpu_cupti_13_0)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/mfu/simgpu)
  endif()
endforeach()
