# The CUDA language for Hopper. No room holds CUDA code: with DI_CUDA the configure step proves that
# the compiler is there and reaches sm_90a, and the product is the same as without.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "DI_CUDA is ON, but there is no CUDA compiler: install the CUDA toolkit (12.3 "
    "or newer) and put nvcc on the PATH, or use the preset `release`.")
endif()
set(CMAKE_CUDA_ARCHITECTURES 90a)
enable_language(CUDA)
