# One interface target that every target of ours links: language level, warnings, sanitizer. No global flags.
add_library(mfu_flags INTERFACE)
target_compile_features(mfu_flags INTERFACE cxx_std_20)
target_compile_options(mfu_flags INTERFACE -Wall -Wextra -Wshadow -fno-omit-frame-pointer
  $<$<BOOL:${MFU_WERROR}>:-Werror> $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
# gcc 12 sees overlapping copies in any "text" + std::string at -O3 (its bug 105651, gone in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(mfu_flags INTERFACE -Wno-restrict)
endif()
if(MFU_SANITIZE)
  target_compile_definitions(mfu_flags INTERFACE MFU_SANITIZED)
  if(MFU_SANITIZE STREQUAL thread)
    target_compile_definitions(mfu_flags INTERFACE MFU_THREAD_SANITIZED)
  endif()
  target_compile_options(mfu_flags INTERFACE -fsanitize=${MFU_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(mfu_flags INTERFACE -fsanitize=${MFU_SANITIZE})
  # One runtime for a program and the libraries that it loads, as gcc has it by default.
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    # Functions of other libraries are called by the types that we know of them, not by their own.
    target_compile_options(mfu_flags INTERFACE -fno-sanitize=function)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-resource-dir OUTPUT_VARIABLE resources OUTPUT_STRIP_TRAILING_WHITESPACE)
    target_link_options(mfu_flags INTERFACE -shared-libsan -Wl,-rpath,${resources}/lib/linux)
  endif()
endif()
# Hardened, as distributions build what they ship: canaries, checked calls of the C library, landing pads for indirect jumps
# (Intel CET, Arm BTI). What is shipped is linked with -z relro and -z now as well. Sanitizers and fuzzers have their own checks.
if(NOT MFU_SANITIZE AND NOT MFU_FUZZ)
  target_compile_options(mfu_flags INTERFACE -fstack-protector-strong
    $<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=2>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(mfu_flags INTERFACE -fcf-protection=full)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    target_compile_options(mfu_flags INTERFACE -mbranch-protection=standard)
  endif()
endif()
# The library goes into images that are older than the machine which builds it. gcc looks into -B first, for start files and
# libraries alike. What the compiler adds of its own (libstdc++, libgcc) must be linked in.
set(MFU_OLD_GLIBC "" CACHE PATH "What tools/old-glibc prints: what is loaded into other images is linked against it; empty: this machine's")
if(MFU_OLD_GLIBC AND NOT MFU_SANITIZE)  # what is never called is left out, function by function
  target_compile_options(mfu_flags INTERFACE -ffunction-sections -fdata-sections)
endif()
function(mfu_link_for_old_glibc target)
  if(MFU_OLD_GLIBC AND NOT MFU_SANITIZE)
    target_link_options(${target} PRIVATE -B${MFU_OLD_GLIBC}/ -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  endif()
endfunction()
if(MFU_FUZZ)  # coverage everywhere; the fuzz targets add libFuzzer's main
  set(MFU_FUZZ_CHECKS address,undefined CACHE STRING "Sanitizers of the libFuzzer targets; without `address` they run faster")
  target_compile_options(mfu_flags INTERFACE -fsanitize=fuzzer-no-link,${MFU_FUZZ_CHECKS} -fno-sanitize-recover=all)
  target_compile_definitions(mfu_flags INTERFACE _GLIBCXX_ASSERTIONS)
  if(NOT MFU_FUZZ_CHECKS MATCHES address)
    # Tracing comparisons takes a quarter of the time: left to the short runs.
    target_compile_options(mfu_flags INTERFACE -fno-sanitize-coverage=trace-cmp)
    # Every counter is looked at after each execution: those of functions that a fuzzer never calls are left out.
    target_compile_options(mfu_flags INTERFACE -ffunction-sections -fdata-sections)
    target_link_options(mfu_flags INTERFACE -Wl,--gc-sections -Wl,-z,start-stop-gc)
  endif()
  target_link_options(mfu_flags INTERFACE -fsanitize=${MFU_FUZZ_CHECKS})
endif()
