#!/usr/bin/env bash
# Runs compute-sanitizer over the small parity cases of every kernel family of the cuda backend and
# prints one JSON line a family and tool: how many cases ran, how many errors were found. Needs a
# machine with a device. Exits with 1 when there is an error or a case did not pass.
#
# Usage: tools/sanitize_cuda.sh [--dir DIR] [--limit SECONDS] [--tool TOOL]… [FAMILY…]
#   --dir    where ops_cuda_test and sampling_cuda_test lie (default: the preset ci's folders)
#   --limit  for each family and tool; what ran until then is reported (default 600)
#   --tool   memcheck, racecheck, synccheck or initcheck (default: memcheck and racecheck)
set -uo pipefail
cd "$(dirname "$0")/.."

# Families, their test program, and a filter of its cases for racecheck, which is slow: the smallest
# that reach every kernel; then one for the other tools: all but the largest.
families='
linears   ops_cuda_test      CudaPacking*:CudaLinear*NanOf*:CudaLinear*Factor*                           CudaLinear*:CudaPacking*
experts   ops_cuda_test      CudaExpertLists*:CudaExperts*Slots*:CudaExperts*WithoutNumbers*             CudaExpert*
attention ops_cuda_test      AttentionOnCudaTest.GivesTheSame*:*SeesTheBlock*/7:WindowKeys*:Kv*        *AttentionOnCuda*:WindowKeys*:Kv*-*/0:*/1
indexer   ops_cuda_test      IndexKeys*:*IndexOnCuda*/4:*IndexOnCuda*/7:IndexSelect*First*               IndexKeys*:*IndexOnCuda*:IndexSelect*-*Long*:*AnyNumber
sites     ops_cuda_test      *MhcSite*/6                                                                 *MhcSite*-*/1:*/2:*/4
rows      ops_cuda_test      Shapes/RowsOn*:RowMoves*:DraftRows*:Rope*:Engram*:CudaRoute*:CudaSwiGlu*:Compressor*    Shapes/RowsOn*:RowMoves*:DraftRows*:Rope*:Engram*:CudaRoute*:CudaSwiGlu*:Compressor*
canonical ops_cuda_test      CanonicalOnCuda.D*:CanonicalOnCuda.MakesW*                                     CanonicalOnCuda.*
sampler   sampling_cuda_test *DrawOnCuda*/0:DrawRows*:*VerifyOnCuda*/0:*DraftsOnCuda*/0                              *-BlocksOnCuda*
'

dir='' limit=600 tools=() wanted=()
while (($#)); do
  case $1 in
    --dir) dir=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --tool) tools+=("$2"); shift 2 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) wanted+=("$1"); shift ;;
  esac
done
((${#tools[@]})) || tools=(memcheck racecheck)

program() {
  local found
  for found in "$dir/$1" "build/ci/src/${1%%_*}/cuda/$1"; do
    [[ -x $found ]] && echo "$found" && return
  done
  echo "$1: not built; tools/build.sh ci $1" >&2
  exit 2
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# check TOOL FAMILY PROGRAM FILTER
check() {
  local started=$SECONDS status=0 ran passed errors
  timeout "$limit" compute-sanitizer --tool "$1" --print-limit 20 "$3" --gtest_filter="$4" \
    >"$log" 2>&1 || status=$?
  ran=$(grep -c '^\[ RUN' "$log")
  passed=$(grep -c '^\[       OK' "$log")
  errors=$(sed -n -e 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
    -e 's/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | tail -1)
  printf '{"name": "sanitize", "tool": "%s", "family": "%s", "cases": %d, "passed": %d, "errors": %s, "whole": %s, "seconds": %d}\n' \
    "$1" "$2" "$ran" "$passed" "${errors:-null}" \
    "$([[ $status == 124 ]] && echo false || echo true)" $((SECONDS - started))
  if [[ ${errors:-1} != 0 || $ran != "$passed" ]]; then
    failed=1
    grep -E '^=========|FAILED|Failure' "$log" | head -30 >&2
  fi
}

set -f  # filters are no file names
while read -r family binary small filter; do
  [[ -n $family ]] || continue
  ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $family "* ]] || continue
  path=$(program "$binary") || exit 2
  for tool in "${tools[@]}"; do
    check "$tool" "$family" "$path" "$([[ $tool == racecheck ]] && echo "$small" || echo "$filter")"
  done
done <<<"$families"
exit $failed
