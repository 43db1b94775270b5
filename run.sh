#!/usr/bin/env bash
# Builds the release if need be and lets the default model answer a prompt, greedily, so that
# everyone sees the same answer.
#
# Usage: ./run.sh [PROMPT…]
set -euo pipefail
cd "$(dirname "$0")"

./build.sh >&2
exec build/release/deepinfer generate --model models/seedling --temperature 0 -- \
  "${*:-What is gravity?}"
