#!/usr/bin/env bash
# Installs the Debian 12 packages that the build (and with --tests the checks and tests) need and
# that are missing. Without anything missing it asks the network nothing and takes milliseconds.
#
# Usage: tools/install_packages.sh [--tests]
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config nlohmann-json3-dev libfmt-dev libcli11-dev libpcre2-dev
  libutf8proc-dev)
if [[ "${1:-}" == --tests ]]; then
  packages+=(libgtest-dev clang libclang-rt-14-dev clang-format clang-tidy git python3 python3-dev
    python3-venv)
fi

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian: if the build stops, install what these packages hold: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$state" == installed ]] || missing+=("$package")
done
((${#missing[@]} > 0)) || exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages, and neither root nor sudo to install them. Let an administrator run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"
}
# The list of packages may be stale or empty: update it only when the first try fails.
if ! install >"$log" 2>&1 && ! { "${as_root[@]}" apt-get update && install; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "Could not install ${missing[*]}: see above. With them installed the build needs no network." >&2
  exit 1
fi
