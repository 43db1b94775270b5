#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy over the named sources, or over all of src/. Uses the compile
# commands of the preset `dev`, which it configures when they are missing.
#
# Usage: tools/tidy.sh [FILE.cc…]      changed ones: tools/tidy.sh $(git diff --name-only main '*.cc')
set -euo pipefail
cd "$(dirname "$0")/.."

[[ -f build/dev/compile_commands.json ]] || cmake --preset dev >/dev/null
if (($# > 0)); then
  printf '%s\0' "$@"
else
  git ls-files -z 'src/*.cc' ':!src/*_fuzz.cc'
fi | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/dev --quiet --extra-arg=-Wno-unknown-warning-option
