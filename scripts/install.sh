#!/usr/bin/env bash
# scripts/install.sh [build]: installs the Debian packages of scripts/packages.txt that are missing, and says which. Silent when
# none is. `build`: only those that are needed to build and run.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=$(awk -v only="${1:-}" 'only == "build" && /^# For tests/ {exit} !/^#/ && NF {print $1, $2, $3}' scripts/packages.txt)
missing=()
# Whether a command is there and no older than `least` says; that of an older one is said.
serves() {
  command -v "$1" >/dev/null || return 1
  [ -n "${2:-}" ] || return 0
  local version
  version=$("$1" --version 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)*' | head -1) || true
  [ -n "$version" ] && [ "$(printf '%s\n' "$2" "$version" | sort -V | head -1)" = "$2" ] && return 0
  echo "orrery: $(command -v "$1") is version ${version:-unknown}, and $2 or newer is needed" >&2
  return 1
}
while read -r package instead least; do
  [ -z "$instead" ] || ! serves "$instead" "$least" || continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done <<<"$packages"
install() {
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "orrery: needs root to install: ${missing[*]}" >&2; exit 1; }
    sudo=(sudo)
  fi
  echo "Installing with apt: ${missing[*]}"
  local log
  log=$(mktemp)
  trap "rm -f '$log'" EXIT
  export DEBIAN_FRONTEND=noninteractive
  if ! { "${sudo[@]}" apt-get update && "${sudo[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "orrery: apt could not install the packages above" >&2
    exit 1
  fi
}
[ ${#missing[@]} -eq 0 ] || install
# Where an older one of another maker comes first in PATH, Debian's beside it does not help.
while read -r package instead least; do
  if [ -n "$least" ] && ! serves "$instead" "$least"; then exit 1; fi
done <<<"$packages"
