#!/usr/bin/env bash
# Formats every C++ file of the repository, or with --check names those that are not formatted.
#
# Usage: tools/format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(-i)
[[ "${1:-}" == --check ]] && mode=(--dry-run -Werror)
git ls-files -z '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 -n 16 -P "$(nproc)" clang-format "${mode[@]}"
