# The example of docs/emulator.md in the three builds of its kernel.
find_package(GTest REQUIRED)
foreach(check none address race)
  heed_emulated_kernels(kernels_${check} SOURCES ${CMAKE_CURRENT_LIST_DIR}/../../simt/example/scale.cu CHECK ${check})
  add_executable(test_${check} ${CMAKE_CURRENT_LIST_DIR}/../../simt/example/scale_test.cpp)
  target_link_libraries(test_${check} PRIVATE kernels_${check} GTest::gtest_main)
  target_compile_definitions(test_${check} PRIVATE HEED_SOURCE_FOLDER="${CMAKE_CURRENT_LIST_DIR}/../../..")
  add_test(NAME ${check} COMMAND test_${check})
endforeach()
