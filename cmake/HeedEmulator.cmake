# Kernels for the emulator, in heed itself and, installed, in projects that find it.
# heed_emulated_kernels(NAME SOURCES a.cu … [CHECK address|race])   an object library of kernels that run on the emulator

function(heed_emulated_kernels name)
  cmake_parse_arguments(ARG "" "CHECK" "SOURCES" ${ARGN})
  set_source_files_properties(${ARG_SOURCES} PROPERTIES LANGUAGE CXX)
  add_library(${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE heed::emulated_flags)
  if(TARGET heed_build_flags)
    target_link_libraries(${name} PRIVATE heed_build_flags)
  endif()
  if(ARG_CHECK STREQUAL "address")
    # Optimising takes longer than it saves. Without, g++ 12 warns of branches that are never taken.
    target_compile_options(${name} PRIVATE -O0 -g1 -Wno-stringop-overflow -fno-sanitize-recover=all
                           -fsanitize=address,alignment,signed-integer-overflow)
    target_link_libraries(${name} PUBLIC heed::emulator_address)
  elseif(ARG_CHECK STREQUAL "race")
    # Only the instrumentation: its callbacks are the race checker's.
    target_compile_options(${name} PRIVATE -O1 -g1 -fsanitize=thread,alignment)
    target_link_libraries(${name} PUBLIC heed::emulator_race)
  else()
    target_link_libraries(${name} PUBLIC heed::emulator)
  endif()
endfunction()
