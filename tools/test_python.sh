#!/usr/bin/env bash
# Installs the Python package into an environment of its own, as `pip install .` does for a user, and
# checks and tests it. Needs PyPI for what pyproject.toml names.
#
# Usage: tools/test_python.sh [ARGUMENT…]     arguments go to pytest
#   DI_PROGRAM   the program to compare texts with (default: the preset ci builds it)
set -euo pipefail
cd "$(dirname "$0")/.."

room=build/python
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
if [[ -z "${DI_PROGRAM:-}" ]]; then
  tools/build.sh ci deepinfer
  export DI_PROGRAM=$PWD/build/ci/deepinfer
fi
[[ -x "$room/venv/bin/python" ]] || python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check \
  --config-settings "build-dir=$room/wheel" --config-settings cmake.define.DI_WERROR=ON \
  --config-settings cmake.define.DI_CUDA=OFF '.[test]'
"$room/venv/bin/ruff" format --check --quiet python examples
"$room/venv/bin/ruff" check --quiet python examples
"$room/venv/bin/python" -m pytest --quiet "$@"
