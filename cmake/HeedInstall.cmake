# Install rules and the package: find_package(heed COMPONENTS nn) gives heed::nn and what it needs.
# The emulator is a component of its own, which `cmake --install BUILD --component Emulator` installs alone.
include(CMakePackageConfigHelpers)
set(heed_package ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
# Static libraries pass their private dependencies on to whoever links them.
set(HEED_PRIVATE_DEPENDENCIES "")
if(NOT BUILD_SHARED_LIBS)
  string(APPEND HEED_PRIVATE_DEPENDENCIES "list(APPEND CMAKE_MODULE_PATH \${CMAKE_CURRENT_LIST_DIR})\n"
         "find_dependency(hwy CONFIG)\n")
  if(TARGET heed_metrics OR TARGET heed_text)
    string(APPEND HEED_PRIVATE_DEPENDENCIES "find_dependency(Utf8proc)\n")
  endif()
  if(TARGET heed_text AND HEED_HAVE_SENTENCEPIECE)
    string(APPEND HEED_PRIVATE_DEPENDENCIES "find_dependency(SentencePiece)\n")
  endif()
  if(HEED_CUDA_MODE STREQUAL "ON")
    string(APPEND HEED_PRIVATE_DEPENDENCIES "find_dependency(CUDAToolkit)\n")
  endif()
  if(HEED_HAVE_ONEDNN)
    string(APPEND HEED_PRIVATE_DEPENDENCIES "find_dependency(OneDNN)\n")
  endif()
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/HeedConfig.cmake.in ${PROJECT_BINARY_DIR}/heedConfig.cmake
                              INSTALL_DESTINATION ${heed_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
function(heed_install_package component)
  install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake ${ARGN}
          DESTINATION ${heed_package} COMPONENT ${component})
endfunction()

if(HEED_EMULATOR)
  set_target_properties(heed_emulated_flags PROPERTIES EXPORT_NAME emulated_flags)
  install(TARGETS heed_emulator heed_emulator_address heed_emulator_race heed_emulated_flags EXPORT heedEmulatorTargets
          LIBRARY COMPONENT Emulator ARCHIVE COMPONENT Emulator)
  install(EXPORT heedEmulatorTargets NAMESPACE heed:: DESTINATION ${heed_package} COMPONENT Emulator)
  install(DIRECTORY kernels/simt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/kernels COMPONENT Emulator
          FILES_MATCHING PATTERN "*.h" PATTERN race EXCLUDE PATTERN runtime EXCLUDE)
  heed_install_package(Emulator ${PROJECT_SOURCE_DIR}/cmake/HeedEmulator.cmake)
endif()
if(HEED_CUDA_MODE STREQUAL "EMULATED")
  return()  # heed with an emulated device is for testing, and is not installed
endif()

set_target_properties(${HEED_LIBRARIES} PROPERTIES INSTALL_RPATH "$ORIGIN")  # shared ones find each other
install(TARGETS ${HEED_LIBRARIES} EXPORT heedTargets
        RUNTIME COMPONENT Runtime LIBRARY COMPONENT Runtime ARCHIVE COMPONENT Development)
install(EXPORT heedTargets NAMESPACE heed:: DESTINATION ${heed_package} COMPONENT Development)
install(FILES ${PROJECT_BINARY_DIR}/include/heed/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed
        COMPONENT Development)
foreach(found OneDNN Utf8proc SentencePiece)
  list(APPEND heed_find_modules ${PROJECT_SOURCE_DIR}/cmake/Find${found}.cmake)
endforeach()
heed_install_package(Development ${heed_find_modules})
