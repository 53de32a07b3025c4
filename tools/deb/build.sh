#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/deb/build.sh PYTHON_OF_THE_TREE WHEEL OUT DISTRIBUTION...
# Builds netagent and netagent-analyzer for each distribution (debian-12, debian-13) into OUT/DISTRIBUTION.
set -euo pipefail
export BUILD_PYTHON WHEEL PYTHON SUITE SOURCE_DATE_EPOCH
BUILD_PYTHON=$(realpath -s "$1") WHEEL=$(realpath "$2") out=$(realpath -m "$3")
shift 3
tree=$(cd "$(dirname "$0")/../.." && pwd)
cd "$tree"
version=$("$BUILD_PYTHON" -c 'import netagent; print(netagent.__version__)')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y debian/changelog)

# files    Those of the tree, each with a NUL behind it; in an export without git, all but what is built.
files() {
  git ls-files -z --cached --others --exclude-standard 2>/dev/null ||
    find . \( -path ./.venv -o -path ./build -o -path ./.git -o -name __pycache__ \) -prune -o -type f -print0
}

for distribution in "$@"; do
  SUITE=deb${distribution#debian-}
  PYTHON=$("$BUILD_PYTHON" -c 'import sys; from vagrant.vm.distributions import distribution; print(distribution(sys.argv[1]).python)' "$distribution")
  rm -rf "${out:?}/$distribution"
  source=$out/$distribution/netagent-$version
  mkdir -p "$source"
  files | xargs -0 cp --parents -t "$source"
  # The version is the code's: the changelog of the packages has the same one.
  if [ "$(cd "$source" && dpkg-parsechangelog -S Version)" != "$version" ]; then
    echo "build.sh: debian/changelog is of another version than $version" >&2
    exit 1
  fi
  (cd "$source" && dpkg-buildpackage -b -us -uc) >"$out/$distribution/log" 2>&1 || {
    tail -n 40 "$out/$distribution/log" >&2
    exit 1
  }
  rm -rf "$source"
  ls "$out/$distribution"/*.deb
done
