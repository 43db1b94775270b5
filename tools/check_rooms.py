#!/usr/bin/env python3
"""Fails when a file includes a room, or a library, that its own room may not see.

The rooms under src/ form floors (docs/architecture.md); includes point downward only. A library is
wrapped by the files named here, so that it can be replaced in one place.
"""
import pathlib
import re
import sys

LOW = {"base", "tensor", "config"}
MAY_SEE = {
    "base": set(),
    "tensor": {"base"},
    "config": {"base", "tensor"},
    "ops": {"base", "tensor"},
    "text": {"base", "config"},
    "checkpoint": LOW,
    "cache": LOW | {"ops/rows.h", "ops/attention.h", "ops/compressor.h", "ops/indexer.h"},
    "sampling": {"base", "tensor"},
    "model": LOW | {"ops", "checkpoint", "cache"},
    "sched": {"base", "cache/pools.h", "cache/layout.h"},
    "engine": LOW | {"ops", "text", "checkpoint", "cache", "sampling", "model", "sched"},
}
MAY_SEE["verify"] = set(MAY_SEE)
MAY_SEE["bench"] = set(MAY_SEE)
MAY_SEE["cli"] = set(MAY_SEE)

# Folders that may see more than their room.
FOLDER_MAY_SEE = {
    "sampling/cuda": {"ops/cuda/launch.h", "ops/cuda/memory.h", "ops/cuda/benchmarks.h",
                      "ops/cuda/testing.h"},
}

LIBRARY_HOMES = {
    "nlohmann/": ["base/json.cc"],
    "CLI/": ["cli/"],
    "pcre2.h": ["text/"],
    "utf8proc.h": ["text/"],
    "immintrin.h": ["base/", "ops/cpu/", "bench/"],
    "cuda": ["ops/cuda/", "sampling/cuda/"],
    "cupti": ["ops/cuda/kernel_trace.cc"],
}


def forbidden(path, line):
    """What is wrong with one line of src/`path`, or None."""
    room = path.parts[0]
    if ours := re.match(r'#include "(([a-z_]+)/[^"]+)"', line):
        header, other = ours.groups()
        may_see = MAY_SEE[room] | FOLDER_MAY_SEE.get(path.parent.as_posix(), set())
        if other != room and not may_see & {header, other}:
            return f"{room} may not include {header}"
    if theirs := re.match(r"#include <([^>]+)>", line):
        for library, homes in LIBRARY_HOMES.items():
            if theirs[1].startswith(library) and not path.as_posix().startswith(tuple(homes)):
                return f"<{theirs[1]}> belongs to {', '.join(homes)} alone"
    return None


def main():
    source = pathlib.Path(__file__).parent.parent / "src"
    bad = 0
    for file in sorted(f for f in source.rglob("*") if f.suffix in {".h", ".cc", ".cuh", ".cu"}):
        path = file.relative_to(source)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if finding := forbidden(path, line):
                print(f"src/{path}:{number}: {finding}")
                bad += 1
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
