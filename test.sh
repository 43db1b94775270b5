#!/usr/bin/env bash
# Every check and every test, from nothing but a Debian 12 machine: rules of the tree, the optimised
# build and its tests, the Python package and its tests, the sanitised builds and their tests, the
# fuzzers. Goes on after a failure, so that one run tells all; the last line counts, and the exit
# status is 1 when anything failed.
#
# Usage: ./test.sh [checks|ci|python|dev|tsan|fuzz…]     all parts when none is named
#   DI_FUZZ_SECONDS   seconds for each fuzzer (60 in CI, else 10)
set -uo pipefail
cd "$(dirname "$0")" || exit 1

tools/install_packages.sh --tests || exit 1

passed=0
failed=0
skipped=0
summary=

# part NAME COMMAND…: runs one part and notes how long it took. A part that counts no tests itself
# counts as one.
part() {
  local name=$1 start=$SECONDS good=$passed bad=$failed verdict=passed
  shift
  echo "== $name"
  if "$@"; then
    ((passed + failed > good + bad)) || passed=$((passed + 1))
  else
    ((failed > bad)) || failed=$((failed + 1))
    verdict=FAILED
  fi
  summary+=$(printf '%-28s %-7s %4d s' "$name" "$verdict" $((SECONDS - start)))$'\n'
}

# run_tests PRESET: runs the tests of a build and adds their number to the totals.
run_tests() {
  local report=build/$1/report.xml verdict=0
  rm -f "$report"
  ctest --preset "$1" -j "$(nproc)" --output-junit "$PWD/$report" || verdict=1
  [[ -f "$report" ]] || return 1
  count() { sed -n "s/^\\t$1=\"\\([0-9]*\\)\"\$/\\1/p" "$report" | head -n 1; }
  local all bad not_run
  all=$(count tests) bad=$(count failures) not_run=$(($(count skipped) + $(count disabled)))
  passed=$((passed + all - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
  return $verdict
}

# run_pytest: builds the Python package and runs its tests, and adds their number to the totals.
run_pytest() {
  local report=build/python/report.xml verdict=0
  rm -f "$report"
  tools/test_python.sh --junitxml "$report" || verdict=1
  [[ -f "$report" ]] || return 1
  count() { sed -n "s/.*<testsuite [^>]*$1=\"\([0-9]*\)\".*/\1/p" "$report"; }
  local bad not_run
  bad=$(($(count failures) + $(count errors))) not_run=$(count skipped)
  passed=$((passed + $(count tests) - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
  return $verdict
}

checks() {
  part "format" tools/format.sh --check
  part "rooms" tools/check_rooms.py
  part "tree" tools/check_tree.py
  part "faults" tools/check_faults.py
}

ci() {
  part "ci: build" tools/build.sh ci
  part "ci: tests" run_tests ci
}

python() {
  part "python" run_pytest
}

dev() {
  part "sanitizers: build" tools/build.sh dev
  part "sanitizers: tests" run_tests dev
}

tsan() {
  part "threads: build" tools/build.sh tsan base_test engine_test
  part "threads: tests" run_tests tsan
}

fuzz() {
  local seconds=${DI_FUZZ_SECONDS:-$([[ -n "${CI:-}" ]] && echo 60 || echo 10)}
  part "fuzz, $seconds s each" tools/fuzz.sh "$seconds"
}

parts=("$@")
((${#parts[@]} > 0)) || parts=(checks ci python dev tsan fuzz)
for name in "${parts[@]}"; do
  case "$name" in
    checks | ci | python | dev | tsan | fuzz) "$name" ;;
    *) echo "test.sh: no part is called $name; there are checks, ci, python, dev, tsan, fuzz" >&2 && exit 2 ;;
  esac
done

printf '\n%s\n' "$summary"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
