#!/usr/bin/env bash
# install.sh FOLDER: puts the packages of package-lock.json there, where they are not there yet. 77: there is no npm, or no registry,
# and it is not CI.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
cmp -s "$here/package-lock.json" installed.json && exit 0
cannot() {
  echo "skipped: $1" >&2
  [ "${CI:-}" = true ] && exit 1
  exit 77
}
command -v npm >/dev/null || cannot "there is no npm (scripts/install.sh)"
cp "$here/package.json" "$here/package-lock.json" .
npm ci --no-audit --no-fund --ignore-scripts --loglevel=error || cannot "npm could not install playwright-core and axe-core"
cp package-lock.json installed.json
