# oneDNN 2.6 or 3.x: the target OneDNN::OneDNN. Not through oneDNN's own package file, which on some systems
# asks for an OpenCL that nothing here needs.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(OneDNN_LIBRARY dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

if(OneDNN_INCLUDE_DIR)
  file(STRINGS ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h onednn_version_lines REGEX "DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" OneDNN_VERSION
         "${onednn_version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION)

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES IMPORTED_LOCATION ${OneDNN_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()
