# heed_library(NAME HEADERS … SOURCES … PUBLIC … PRIVATE … [PRECOMPILED TARGET]): the target heed::NAME, built from this
# folder; with the precompiled headers of a target, where HEED_PRECOMPILE is set.
# heed_umbrella(NAME…): <heed/heed.h>, which includes all headers of these libraries.
# heed_program(NAME SOURCES … LIBRARIES …): a program in build/…/bin.
# heed_together(TARGET): with HEED_UNITY, its sources are compiled several in one file, where their names allow it.
# heed_test(NAME SOURCES … LIBRARIES … [LABELS …] [THREADS n]): a GoogleTest program registered with ctest; one
# labelled slow (`ctest -LE slow` leaves it out) may take half an hour instead of ten minutes. The variable
# heed_precompiled names the program whose precompiled headers it uses, heed_program_flags further flags.
include(GNUInstallDirs)

# A compiler cache knows each source, but not by precompiled headers.
set(HEED_PRECOMPILE ON)
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache" OR HEED_FUZZ)
  set(HEED_PRECOMPILE OFF)
endif()

if(HEED_UNITY)
  find_package(Python3 3.8 REQUIRED COMPONENTS Interpreter)
endif()
function(heed_together target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "[$]<")
  list(LENGTH sources count)
  if(NOT HEED_UNITY OR count LESS 2)
    return()
  endif()
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/together.py ${sources}
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # it takes a source that is included for a header
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  foreach(entry ${groups})
    string(REGEX MATCH "^([0-9]+)=(.*)$" entry ${entry})
    set_property(SOURCE ${CMAKE_MATCH_2} PROPERTY UNITY_GROUP ${CMAKE_MATCH_1})
  endforeach()
endfunction()

# The build tree shows headers as a consumer sees them: #include <heed/core/tensor.h>.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/heed)
foreach(folder core kernels nn optim data train)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/include/heed/${folder} SYMBOLIC)
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/version.h.in ${PROJECT_BINARY_DIR}/include/heed/version.h @ONLY)

set(HEED_LIBRARIES "" CACHE INTERNAL "")

function(heed_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "HEADERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(heed_${name} ${ARG_SOURCES})
  heed_together(heed_${name})
  if(HEED_LIBRARY_LAUNCHER)
    set_target_properties(heed_${name} PROPERTIES CXX_COMPILER_LAUNCHER ${HEED_LIBRARY_LAUNCHER})
  elseif(HEED_PRECOMPILE AND ARG_PRECOMPILED)
    target_precompile_headers(heed_${name} REUSE_FROM ${ARG_PRECOMPILED})
  endif()
  add_library(heed::${name} ALIAS heed_${name})
  set_target_properties(heed_${name} PROPERTIES EXPORT_NAME ${name} VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                        DEFINE_SYMBOL "")  # objects of shared and static libraries are alike to the compiler's cache
  target_include_directories(heed_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(heed_${name} PUBLIC cxx_std_20)
  target_link_libraries(heed_${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:heed_build_flags> ${ARG_PRIVATE})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM ARG_HEADERS PREPEND ${folder}/ OUTPUT_VARIABLE headers)
  set_property(TARGET heed_${name} PROPERTY HEED_HEADERS ${headers})
  foreach(header ${ARG_HEADERS})
    get_filename_component(subfolder ${folder}/${header} DIRECTORY)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/${subfolder} COMPONENT Development)
  endforeach()
  set(HEED_LIBRARIES ${HEED_LIBRARIES} heed_${name} CACHE INTERNAL "")
endfunction()

function(heed_umbrella)
  set(text "// Everything that a program needs: tensors, operations, modules, optimizers, data and training.\n#pragma once\n\n#include <iostream>\n\n")
  foreach(name ${ARGN})
    get_target_property(headers heed_${name} HEED_HEADERS)
    foreach(header ${headers})
      string(APPEND text "#include <heed/${header}>\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/heed/heed.h CONTENT "${text}" @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/include/heed/heed.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed
          COMPONENT Development)
endfunction()

function(heed_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  heed_together(${name})
  target_link_libraries(${name} PRIVATE heed_build_flags ${heed_program_flags} ${ARG_LIBRARIES})
endfunction()

function(heed_test name)
  cmake_parse_arguments(ARG "" "THREADS" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  heed_program(${name} SOURCES ${ARG_SOURCES} LIBRARIES ${ARG_LIBRARIES} heed_gtest)
  if(heed_precompiled)
    target_precompile_headers(${name} REUSE_FROM ${heed_precompiled})
  endif()
  set(timeout 600)
  if("slow" IN_LIST ARG_LABELS)
    set(timeout 1800)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_THREADS)
    set(ARG_THREADS 1)
  endif()
  math(EXPR processors "(${ARG_THREADS} + 1) / 2")  # much of a test is one thread's work
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "HEED_NUM_THREADS=${ARG_THREADS}" LABELS "${ARG_LABELS}"
                       PROCESSORS ${processors} TIMEOUT ${timeout})
endfunction()
