#!/usr/bin/env python3
"""Fails when docs/faults.md names a test that does not exist, or skips a fault's number."""
import pathlib
import re
import sys

EXPECTED = {"S": 48, "Z": 8, "D": 8, "V": 8}


def main():
    root = pathlib.Path(__file__).parent.parent
    page = (root / "docs/faults.md").read_text()
    sources = [*root.glob("src/**/*_test.cc"), *root.glob("python/tests/*.py")]
    known = set()
    for source in sources:
        known.update(re.findall(r"TEST(?:_[FP])?\((\w+),\s*(?:\w+)\)", source.read_text()))
        known.update(re.findall(r"TEST(?:_[FP])?\(\s*\w+,\s*(\w+)\s*\)", source.read_text()))
        known.update(re.findall(r"def (test_\w+)\(", source.read_text()))
    bad = 0
    for name in re.findall(r"`(\w+)`", "\n".join(row.rsplit("|", 2)[1] for row in rows(page))):
        if name not in known:
            print(f"docs/faults.md: there is no test {name}")
            bad += 1
    listed = [row.split("|")[1].strip() for row in rows(page)]
    for letter, count in EXPECTED.items():
        if [f for f in listed if f[0] == letter] != [f"{letter}-{i + 1}" for i in range(count)]:
            print(f"docs/faults.md: the faults {letter}-1 … {letter}-{count} are not all there, in order")
            bad += 1
    return bad > 0


def rows(page):
    """The table rows of faults."""
    return [line for line in page.splitlines() if re.match(r"\| [SZDV]-\d+ \|", line)]


if __name__ == "__main__":
    sys.exit(main())
