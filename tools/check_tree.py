#!/usr/bin/env python3
"""Fails when a tracked file breaks a rule of the tree: weight, stray words, a missing opening.

The rules: at most 60 MB tracked, 25 MB of them under tests/data; no path of somebody's machine; no
unfinished work without an issue; the environment is read in one file; every header,
and every source file without one, opens with a comment that says what it owns.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
MAX_BYTES = {"": 60_000_000, "tests/data/": 25_000_000}

# (what is wrong, pattern, files it applies to, files it does not apply to)
STRAY = [
    ("a path of one machine", r"(^|[\s\"'=(])/(work|home|root|Users|mnt)/", r"", r"^tests/(data|corpus)/"),
    ("a package host", r"index[-]url|extra[-]index", r"", r"^$"),
    ("unfinished work", r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", r"\.(h|cc|cu|cuh|cmake|sh|py|md|txt)$", r"^tools/check_tree\.py$"),
    ("an environment read outside src/engine/environment.cc", r"\b(getenv|environ)\b", r"^src/.*\.(h|cc|cu|cuh)$", r"^src/engine/(environment\.cc|testing\.h)$"),
]
TEXT = re.compile(r"\.(h|cc|cu|cuh|cmake|sh|py|md|toml|txt|json|yml)$|(^|/)\.?[a-z-]+$|(^|/)(NOTICE|LICENSE)$")


def tracked():
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    return [name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def check_weight(files):
    for folder, limit in MAX_BYTES.items():
        total = sum((ROOT / name).stat().st_size for name in files if name.startswith(folder))
        if total > limit:
            yield f"{folder or 'the tree'} weighs {total / 1e6:.1f} MB, {limit / 1e6:.0f} are allowed"


def check_words(name, text):
    for what, pattern, applies, excepted in STRAY:
        if not re.search(applies, name) or re.search(excepted, name):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                yield f"{name}:{number}: {what}: {line.strip()[:80]}"


def check_opening(name, text):
    has_header = name.endswith(".cc") and (ROOT / name).with_suffix(".h").exists()
    is_test = name.endswith("_test.cc")
    if re.search(r"^(src|python)/.*\.(h|cc)$", name) and not has_header and not is_test:
        if not text.startswith("//"):
            yield f"{name}:1: does not open with what the file owns"


def main():
    files = tracked()
    findings = list(check_weight(files))
    for name in files:
        if TEXT.search(name) and not name.startswith("models/"):
            text = (ROOT / name).read_text(errors="replace")
            findings += [*check_words(name, text), *check_opening(name, text)]
    print("\n".join(findings), end="\n" if findings else "")
    return len(findings) > 0


if __name__ == "__main__":
    sys.exit(main())
