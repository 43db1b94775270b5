#!/usr/bin/env bash
# Builds every *_fuzz.cc and runs each for some seconds, starting from tests/corpus/<fuzzer>/ and
# from what earlier runs found. Fails when one crashes, hangs or leaks; the input that did it then
# lies in build/fuzz/crashes/.
#
# Usage: tools/fuzz.sh SECONDS [FUZZER…]
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=$1
shift
tools/build.sh fuzz fuzzers
mkdir -p build/fuzz/crashes build/fuzz/logs

fuzz_one() {
  local program=$1 name
  name=$(basename "$program")
  local found=build/fuzz/corpus/$name seeds=tests/corpus/$name log=build/fuzz/logs/$name.txt
  mkdir -p "$found"
  [[ -d "$seeds" ]] || seeds=
  if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/crashes/$name-" "$found" ${seeds:+"$seeds"} >"$log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no failure"
  else
    tail -n 40 "$log"
    echo "$name: FAILED"
    return 1
  fi
}
export -f fuzz_one
export seconds

find build/fuzz -type f -name '*_fuzz' -perm -u+x | sort |
  { if (($# > 0)); then grep -E "/($(IFS='|'; echo "$*"))\$"; else cat; fi; } |
  xargs -r -n 1 -P "$(nproc)" bash -c 'fuzz_one "$1"' fuzz_one
