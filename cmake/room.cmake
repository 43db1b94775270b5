# di_room(name LINK rooms… SOURCES files…): a room is one static library of src/<name>/ together
# with one test binary made of its *_test.cc files and one fuzzer for each *_fuzz.cc. A main.cc is
# left to the program: in the library it would replace the main of the tests. Tests carry the room's
# name as their label; the target `fuzzers` builds every fuzzer.
#
# FUZZ_SOURCES files… and FUZZ_LINK rooms…: all that the room has in a build for fuzzers, where these
# parse with a small part of it.
#
# THREAD_TESTS files…: all that its tests have under the thread sanitizer: those with threads.
if(DI_FUZZ)
  add_custom_target(fuzzers)
endif()

function(di_room name)
  cmake_parse_arguments(ROOM "" "" "LINK;SOURCES;TEST_LINK;FUZZ_LINK;FUZZ_SOURCES;THREAD_TESTS" ${ARGN})
  if(DI_FUZZ AND ROOM_FUZZ_SOURCES)
    set(ROOM_SOURCES ${ROOM_FUZZ_SOURCES})
    set(ROOM_LINK ${ROOM_FUZZ_LINK})
  endif()
  if(NOT ROOM_SOURCES)
    file(GLOB_RECURSE ROOM_SOURCES CONFIGURE_DEPENDS *.cc)
    list(FILTER ROOM_SOURCES EXCLUDE REGEX "(_test|_fuzz|/main)\\.cc$")
  endif()
  add_library(di_${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(di_${name} PUBLIC di_options ${ROOM_LINK})

  file(GLOB_RECURSE tests CONFIGURE_DEPENDS *_test.cc)
  list(FILTER tests EXCLUDE REGEX "/cuda/")
  if(DI_SANITIZE STREQUAL "thread" AND ROOM_THREAD_TESTS)
    set(tests ${ROOM_THREAD_TESTS})
  endif()
  if(DI_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE di_${name} ${ROOM_TEST_LINK} GTest::gtest_main)
    gtest_discover_tests(${name}_test NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
      PROPERTIES LABELS ${name} TIMEOUT 900)
  endif()

  file(GLOB_RECURSE fuzzers CONFIGURE_DEPENDS *_fuzz.cc)
  if(DI_FUZZ)
    foreach(source ${fuzzers})
      get_filename_component(fuzzer ${source} NAME_WE)
      add_executable(${fuzzer} ${source})
      target_link_libraries(${fuzzer} PRIVATE di_${name})
      target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${fuzzer})
    endforeach()
  endif()
endfunction()
