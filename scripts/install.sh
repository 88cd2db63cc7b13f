#!/usr/bin/env bash
# Installs the Debian packages of scripts/packages.txt that are missing, and says which. Silent when none is.
set -euo pipefail
cd "$(dirname "$0")/.."
missing=()
while read -r package instead; do
  [ -z "$instead" ] || ! command -v "$instead" >/dev/null || continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done < <(grep -v '^#' scripts/packages.txt | awk 'NF {print $1, $2}')
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "orrery: needs root to install: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "Installing with apt: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { "${sudo[@]}" apt-get update && "${sudo[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -20 "$log" >&2
  echo "orrery: apt could not install the packages above" >&2
  exit 1
fi
