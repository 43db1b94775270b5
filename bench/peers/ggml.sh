#!/usr/bin/env bash
# Measures ggml's MXFP4 kernels beside ours in one run and prints JSON lines.
#
#   bench/peers/ggml.sh CACHE [DEEPINFER]
#
# CACHE is a folder outside the repository; ggml's source (from the llama-cpp-python source
# distribution on PyPI) is downloaded and built there once, for AVX2 and, where this processor has
# it, for AVX-512. DEEPINFER is the program to compare with (default build/release/deepinfer).
set -euo pipefail

version=0.3.36
here=$(cd "$(dirname "$0")" && pwd)
cache=${1:?usage: ggml.sh CACHE [DEEPINFER]}
deepinfer=${2:-$here/../../build/release/deepinfer}
rows=(1 2 4 8 16 64)
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
source=$cache/llama_cpp_python-$version/vendor/llama.cpp/ggml

if [[ ! -d $source ]]; then
  python3 -m pip download -q --no-deps --no-binary llama-cpp-python -d "$cache" \
    "llama-cpp-python==$version"
  tar -xf "$cache/llama_cpp_python-$version.tar.gz" -C "$cache"
  touch "$source/ggml.pc.in"  # the distribution leaves it out, its CMake asks for it
fi

# build ISA OPTIONS...: the static library and the driver
build() {
  local isa=$1
  shift
  local out=$cache/$isa
  if [[ ! -x $out/ggml_bench || $here/ggml_bench.cc -nt $out/ggml_bench ]]; then
    cmake -S "$source" -B "$out" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
      -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF \
      -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON "$@" >&2
    cmake --build "$out" --target ggml-cpu ggml-base -j "$(nproc)" >&2
    g++ -std=c++20 -O2 -o "$out/ggml_bench" "$here/ggml_bench.cc" \
      "$out/src/libggml-cpu.a" "$out/src/libggml-base.a" -lpthread -ldl -lm
  fi
}

# measure GGML_ISA OUR_ISAS...: the peer, then ours, on one thread and on all
measure() {
  local isa=$1
  shift
  for threads in $(printf '%s\n' 1 "$(nproc)" | sort -nu); do
    "$cache/$isa/ggml_bench" "$isa" "$threads" "${rows[@]}"
    for ours in "$@"; do
      "$deepinfer" bench ops --only linear_q8.fp4 --isa "$ours" --threads "$threads" \
        --rows "$(IFS=,; echo "${rows[*]}")"
    done
  done
}

build avx2 -DGGML_AVX512=OFF
measure avx2 avx2
if grep -q avx512_vnni /proc/cpuinfo; then
  build avx512 -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON
  measure avx512 avx512 vnni
fi
