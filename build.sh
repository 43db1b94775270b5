#!/usr/bin/env bash
# Builds the release and leaves it at build/release/deepinfer, from nothing but a Debian 12 machine.
set -euo pipefail
cd "$(dirname "$0")"

tools/install_packages.sh
tools/build.sh release
