# Warnings and sanitizers for every target of ours.
add_library(di_options INTERFACE)
target_include_directories(di_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# -ffp-contract=off: a product and a sum are fused only where the code says fma, so that every
# compiler and instruction set rounds alike (docs/numerics.md).
target_compile_options(di_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wpedantic;-Wconversion;-Wno-sign-conversion;-ffp-contract=off>")
if(DI_WERROR)
  target_compile_options(di_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(DI_SANITIZE)
  target_compile_options(di_options INTERFACE -fsanitize=${DI_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(di_options INTERFACE -fsanitize=${DI_SANITIZE})
endif()
if(DI_FUZZ)
  target_compile_options(di_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_compile_definitions(di_options INTERFACE $<$<BOOL:${DI_HAS_CUDA}>:DI_HAS_CUDA>)
