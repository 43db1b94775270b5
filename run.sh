#!/usr/bin/env bash
# Builds the release if need be and lets the default model answer a prompt.
#
# Usage: ./run.sh [PROMPT…]
set -euo pipefail
cd "$(dirname "$0")"

./build.sh >&2
exec build/release/deepinfer generate --model models/seedling "${*:-What is gravity?}"
