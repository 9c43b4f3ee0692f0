# What `./heed gpu-check` packs: programs with their role, one "role<TAB>path" a line in gpu_pack.txt of the build.
# heed_pack(ROLE TARGET)              roles: about, test, kernel_test, goldens, canary, bench
# heed_pack_device_test(TARGET FILE…) a test, if one of its sources reaches a device: through check_op or by name

add_custom_target(gpu_pack_programs)
set_property(GLOBAL PROPERTY HEED_PACKED "")

function(heed_pack role target)
  if(HEED_CUDA_MODE STREQUAL "OFF")
    return()
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY HEED_PACKED "${role}\t$<TARGET_FILE:${target}>\n")
  add_dependencies(gpu_pack_programs ${target})
endfunction()

function(heed_pack_device_test target)
  foreach(file ${ARGN})
    file(STRINGS ${file} found REGEX "(op_check|fused_check|each_device)\\.h|cuda_device" LIMIT_COUNT 1)
    if(found)
      heed_pack(test ${target})
      return()
    endif()
  endforeach()
endfunction()

function(heed_write_pack_list)
  get_property(packed GLOBAL PROPERTY HEED_PACKED)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/gpu_pack.txt
       CONTENT "device\t$<IF:$<STREQUAL:${HEED_CUDA_MODE},EMULATED>,emulated,gpu>\n${packed}")
endfunction()
