# The CUDA backend: HEED_CUDA_MODE ON compiles kernels/cuda with nvcc, EMULATED with the host compiler against the
# emulator in kernels/simt.
# heed_hopper_objects(NAME [PORTABLE] SOURCES …)           an object library of kernels that use Hopper's own instructions;
#                                                          PORTABLE: and run on other devices without
# heed_cuda_flags                                          defines HEED_CUDA_AVAILABLE as 0 or 1

add_library(heed_cuda_flags INTERFACE)
if(HEED_CUDA_MODE STREQUAL "OFF")
  target_compile_definitions(heed_cuda_flags INTERFACE HEED_CUDA_AVAILABLE=0)
else()
  target_compile_definitions(heed_cuda_flags INTERFACE HEED_CUDA_AVAILABLE=1)
endif()

if(HEED_CUDA_MODE STREQUAL "ON")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # One translation to PTX for all, as most kernels do not depend on the architecture; CMake would make one for each.
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    set(HEED_OWN_CUDA_CODE ON)
    set(portable "$<NOT:$<BOOL:$<TARGET_PROPERTY:HEED_HOPPER>>>")
    target_compile_options(heed_build_flags INTERFACE
      "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,${portable}>:--generate-code=arch=compute_80,code=[sm_80,sm_90a,compute_80]>")
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  # A process has one runtime: its own in static programs, a shared one where heed itself is shared.
  add_library(heed_cudart INTERFACE)
  if(BUILD_SHARED_LIBS)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    target_link_libraries(heed_cudart INTERFACE CUDA::cudart)
  else()
    target_link_libraries(heed_cudart INTERFACE CUDA::cudart_static)
  endif()
  set(heed_cuda_include_hint ${CUDAToolkit_INCLUDE_DIRS})
endif()

function(heed_hopper_objects name)
  cmake_parse_arguments(ARG "PORTABLE" "" "SOURCES" ${ARGN})
  add_library(${name} OBJECT ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES HEED_HOPPER ON CUDA_ARCHITECTURES OFF
                        POSITION_INDEPENDENT_CODE ${BUILD_SHARED_LIBS})
  target_compile_options(${name} PRIVATE "--generate-code=arch=compute_90a,code=sm_90a")
  if(ARG_PORTABLE)
    target_compile_options(${name} PRIVATE "--generate-code=arch=compute_80,code=[sm_80,compute_80]")
  endif()
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/include)
  target_link_libraries(${name} PRIVATE heed_build_flags)
endfunction()

# The emulator needs only CUDA's headers: from a toolkit, or from the wheels nvidia-cuda-runtime, nvidia-cuda-crt and
# nvidia-cuda-cccl unpacked anywhere.
find_path(HEED_CUDA_INCLUDE cuda_runtime.h DOC "Folder with cuda_runtime.h, for the emulator"
          HINTS ${heed_cuda_include_hint} ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include)
if(HEED_CUDA_MODE STREQUAL "EMULATED")
  if(NOT HEED_CUDA_INCLUDE)
    message(FATAL_ERROR "HEED_CUDA=EMULATED needs CUDA's headers: set HEED_CUDA_INCLUDE to the folder of cuda_runtime.h")
  endif()
  if(HEED_SANITIZE MATCHES "thread")
    message(FATAL_ERROR "HEED_CUDA=EMULATED does not run under ThreadSanitizer; its own race checker is tests/simt")
  endif()
endif()
if(HEED_EMULATOR AND NOT HEED_CUDA_INCLUDE)
  message(FATAL_ERROR "HEED_EMULATOR needs CUDA's headers: set HEED_CUDA_INCLUDE to the folder of cuda_runtime.h")
endif()
if(HEED_EMULATOR AND HEED_SANITIZE)
  message(FATAL_ERROR "HEED_EMULATOR builds the emulator to be installed, which has no sanitizers of HEED_SANITIZE")
endif()
set(HEED_HAVE_EMULATOR ${HEED_EMULATOR})
if(HEED_CUDA_MODE STREQUAL "EMULATED" OR
   (HEED_CUDA_MODE STREQUAL "OFF" AND HEED_TESTS AND HEED_CUDA_INCLUDE AND NOT HEED_SANITIZE MATCHES "thread"))
  set(HEED_HAVE_EMULATOR ON)
endif()

# How kernel sources are compiled for the emulator.
add_library(heed_emulated_flags INTERFACE)
target_compile_options(heed_emulated_flags INTERFACE -fno-strict-aliasing -Wno-unknown-pragmas -Wno-psabi)
add_library(heed::emulated_flags ALIAS heed_emulated_flags)
include(HeedEmulator)
