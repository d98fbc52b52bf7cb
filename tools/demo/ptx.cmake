# Makes kernels.ptx: cmake -DNVCC=... -DSOURCE_DIR=... -P ptx.cmake
# PTX ISA 7.0 is enough for what the kernels use, and every driver since CUDA 11 takes it.
execute_process(COMMAND ${NVCC} -ptx -arch=compute_75 -O3 ${SOURCE_DIR}/kernels.cu -o demo_kernels.raw.ptx
                COMMAND_ERROR_IS_FATAL ANY)
file(READ demo_kernels.raw.ptx ptx)
file(READ ${SOURCE_DIR}/kernels_costs.txt costs)
string(REGEX REPLACE "\n\\.version [0-9.]+" "\n.version 7.0" ptx "${ptx}")
string(REGEX REPLACE "^.*\n\\.version" "// Made from kernels.cu by the target demo_ptx.\n${costs}\n.version" ptx "${ptx}")
file(WRITE ${SOURCE_DIR}/kernels.ptx "${ptx}")
