# Install rules and the package: find_package(heed COMPONENTS nn) gives heed::nn and what it needs.
include(CMakePackageConfigHelpers)
if(HEED_CUDA_MODE STREQUAL "EMULATED")
  return()  # an emulated build is for testing and is not installable
endif()

# Static libraries pass their private dependencies on to whoever links them.
set(HEED_PRIVATE_DEPENDENCIES "")
if(NOT BUILD_SHARED_LIBS)
  string(APPEND HEED_PRIVATE_DEPENDENCIES "find_dependency(hwy CONFIG)\n")
  if(HEED_CUDA_MODE STREQUAL "ON")
    string(APPEND HEED_PRIVATE_DEPENDENCIES "find_dependency(CUDAToolkit)\n")
  endif()
  if(HEED_HAVE_ONEDNN)
    string(APPEND HEED_PRIVATE_DEPENDENCIES "list(APPEND CMAKE_MODULE_PATH \${CMAKE_CURRENT_LIST_DIR})\nfind_dependency(OneDNN)\n")
  endif()
endif()
set(heed_package ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
set_target_properties(${HEED_LIBRARIES} PROPERTIES INSTALL_RPATH "$ORIGIN")  # shared ones find each other
install(TARGETS ${HEED_LIBRARIES} EXPORT heedTargets
        RUNTIME COMPONENT Runtime LIBRARY COMPONENT Runtime ARCHIVE COMPONENT Development)
install(EXPORT heedTargets NAMESPACE heed:: DESTINATION ${heed_package} COMPONENT Development)
install(FILES ${PROJECT_BINARY_DIR}/include/heed/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed
        COMPONENT Development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/HeedConfig.cmake.in ${PROJECT_BINARY_DIR}/heedConfig.cmake
                              INSTALL_DESTINATION ${heed_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake
        DESTINATION ${heed_package} COMPONENT Development)
