# Unpacks tests/data/*.tar.zst into the build folder, once for each version of an archive.
# DI_TESTDATA is where tests find the fixtures; DI_SEEDLING the default model.
set(DI_TESTDATA ${CMAKE_BINARY_DIR}/testdata)
file(GLOB archives CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/data/*.tar.zst)
foreach(archive ${archives})
  get_filename_component(stem ${archive} NAME)
  file(SHA256 ${archive} digest)
  set(stamp ${DI_TESTDATA}/${stem}.sha256)
  set(unpacked "")
  if(EXISTS ${stamp})
    file(READ ${stamp} unpacked)
  endif()
  if(NOT unpacked STREQUAL digest)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${DI_TESTDATA})
    # Archives may hold read-only folders, which nobody but root could delete again.
    file(CHMOD_RECURSE ${DI_TESTDATA}
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
      DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
        WORLD_READ WORLD_EXECUTE)
    file(WRITE ${stamp} ${digest})
  endif()
endforeach()
target_compile_definitions(di_options INTERFACE
  $<$<BOOL:${DI_TESTS}>:DI_TESTDATA="${DI_TESTDATA}">
  $<$<BOOL:${DI_TESTS}>:DI_SEEDLING="${CMAKE_SOURCE_DIR}/models/seedling">)
