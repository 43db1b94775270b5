#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json, with ccache where there is one. Says
# nothing about the configuration unless it fails.
#
# Usage: tools/build.sh PRESET [TARGET…]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
cmake --build "build/$preset" ${1:+--target "$@"}
