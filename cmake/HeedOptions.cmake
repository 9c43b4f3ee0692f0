# What a build can choose. Public headers hold no build flags: everything here stays inside the libraries.
option(BUILD_SHARED_LIBS "Build shared libraries" OFF)
option(HEED_APPS "Build the programs under apps/" ${PROJECT_IS_TOP_LEVEL})
option(HEED_TESTS "Build the tests" OFF)
option(HEED_CHECKED_KERNELS "Build the tests of CUDA kernels for AddressSanitizer and the race checker too; hold those that nvcc compiles to their budgets" OFF)
option(HEED_BENCH "Build the benchmarks" OFF)
option(HEED_FUZZ "Build the libFuzzer targets (clang only)" OFF)
option(HEED_ONEDNN "Use oneDNN for matrix products where it is faster" ON)
option(HEED_UNITY "Compile sources that can be together in one file: less work for a build from nothing, more after a change" OFF)
option(HEED_EMULATOR "Build and install the emulator of CUDA kernels, for projects with kernels of their own" OFF)
option(HEED_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" OFF)
set(HEED_LIBRARY_LAUNCHER "" CACHE STRING "A compiler cache for the sources of libraries alone, which several builds share")
set(HEED_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined")
set(HEED_ISA "amx" CACHE STRING "The widest instruction set the CPU kernels are built for: baseline, avx2, avx512 or amx; native: this machine's alone")
set_property(CACHE HEED_ISA PROPERTY STRINGS baseline avx2 avx512 amx native)
set(HEED_CUDA "AUTO" CACHE STRING "CUDA backend: AUTO, ON, OFF or EMULATED")
set_property(CACHE HEED_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)

if(NOT HEED_ISA MATCHES "^(baseline|avx2|avx512|amx|native)$")
  message(FATAL_ERROR "HEED_ISA is '${HEED_ISA}'; expected baseline, avx2, avx512, amx or native")
endif()
if(NOT HEED_CUDA MATCHES "^(AUTO|ON|OFF|EMULATED)$")
  message(FATAL_ERROR "HEED_CUDA is '${HEED_CUDA}'; expected AUTO, ON, OFF or EMULATED")
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# AUTO is ON where nvcc and a usable device are found.
set(HEED_CUDA_MODE ${HEED_CUDA})
if(HEED_CUDA STREQUAL "AUTO")
  set(HEED_CUDA_MODE OFF)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE heed_gpus ERROR_QUIET RESULT_VARIABLE heed_no_gpu)
    if(NOT heed_no_gpu AND heed_gpus MATCHES "GPU [0-9]+:")
      set(HEED_CUDA_MODE ON)
    endif()
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
find_package(Threads REQUIRED)

# Warnings and sanitizers of our own targets; consumers inherit nothing.
add_library(heed_build_flags INTERFACE)
target_compile_options(heed_build_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${HEED_WARNINGS_AS_ERRORS}>>:-Werror>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${HEED_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports false positives of these three inside libstdc++ at -O2 and above.
  target_compile_options(heed_build_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-maybe-uninitialized -Wno-array-bounds>)
  # Memory that it uses again is looked for from 500 MB on, not from 128 MB: large sources take a tenth less time, for the same code.
  target_compile_options(heed_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=500000>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # A loop that we ask to be vectorised and that clang leaves as it is costs time, not correctness.
  target_compile_options(heed_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-pass-failed>)
endif()
if(HEED_SANITIZE)
  target_compile_options(heed_build_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${HEED_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(heed_build_flags INTERFACE -fsanitize=${HEED_SANITIZE})
  if(HEED_FUZZ)
    target_compile_options(heed_build_flags INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize-coverage-allowlist=${PROJECT_SOURCE_DIR}/tests/fuzz/coverage.txt>)
  endif()
endif()
