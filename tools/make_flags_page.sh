#!/usr/bin/env bash
# Writes docs/flags.md from the program's own help; a test fails when the page is stale.
#
# Usage: tools/make_flags_page.sh [PROGRAM]    (default build/release/deepinfer)
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:-build/release/deepinfer}
{
  echo "# Flags"
  echo
  echo "Every command and flag, as \`deepinfer --help-all\` prints them. Written by \`tools/make_flags_page.sh\`."
  echo
  echo '```text'
  "$program" --help-all
  echo '```'
} >docs/flags.md
