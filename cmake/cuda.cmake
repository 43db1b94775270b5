# The CUDA language for Hopper, when a compiler is there. DI_CUDA: AUTO takes it when it is found, ON
# requires it, OFF leaves the backend out. Sets DI_HAS_CUDA. The runtime is linked statically, so that
# one program runs with and without a GPU.
set(DI_HAS_CUDA OFF)
if(DI_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know it
    # Named as a system folder, /usr/include would hide the C library's headers from nvcc.
    set(CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
    find_package(CUDAToolkit REQUIRED)
    set(DI_HAS_CUDA ON)
  elseif(DI_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DI_CUDA is ON, but there is no CUDA compiler: install the CUDA toolkit (12.3 "
      "or newer) and put nvcc on the PATH, or leave DI_CUDA at AUTO.")
  endif()
endif()
