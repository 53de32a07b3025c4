#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/deb/private.sh PACKAGE EXTRA PYTHON ROOT
# Puts the private environment of PACKAGE below ROOT/usr/lib/PACKAGE: this project and what requirements.lock pins for
# it and EXTRA, for the distribution's Python PYTHON, as packages that hashes were compared of; and its command.
# BUILD_PYTHON is an interpreter with pip and packaging; WHEEL is this project's, as `make wheel` builds it.
set -euo pipefail
package=$1 extra=$2 python=$3 root=$4
here=$(cd "$(dirname "$0")" && pwd)
home=/usr/lib/$package
site=$root$home/lib/python$python/site-packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$BUILD_PYTHON" "$here/pinned.py" "$here/../../requirements.lock" "$extra" "$python" >"$work/pinned.txt"
"$BUILD_PYTHON" -m pip download -qq --disable-pip-version-check --require-hashes --no-deps --implementation cp \
  --python-version "$python" -d "$work/wheels" -r "$work/pinned.txt"
# What is published as source alone is pure Python: compiled, it would be for this machine's interpreter.
for source in "$work"/wheels/*.tar.gz; do
  [ -e "$source" ] || continue
  "$BUILD_PYTHON" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$work/built" "$source"
done
mkdir -p "$site" "$root$home/bin" "$root/usr/bin"
for wheel in "$work"/wheels/*.whl "$work"/built/*.whl "$WHEEL"; do
  [ -e "$wheel" ] || continue
  "$BUILD_PYTHON" -m zipfile -e "$wheel" "$site"
done
if find "$work/built" -name '*-cp3*' 2>/dev/null | grep -q .; then
  echo "private.sh: compiled from source: $(ls "$work/built")" >&2
  exit 1
fi
# Litestar has examples made by these where they are asked for: a fifth of all modules, which nobody asks for.
rm -rf "$site"/{polyfactory,faker}{,-*}
# Scripts and headers of others are for nobody here.
find "$site" -name '*.data' -type d -prune -exec rm -r {} +
find "$site" -depth -type d \( -name tests -o -name test \) -path '*/site-packages/*' -exec rm -r {} +
find "$root$home" -type f -exec chmod 0644 {} +

# A virtual environment is these two, and sees what Debian has for the same Python: bcc and pyverbs.
ln -sf "/usr/bin/python$python" "$root$home/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = true\nversion = %s\n' "$python" >"$root$home/pyvenv.cfg"

module=netagent
[ "$package" = netagent ] || module=analyzer
[ "$module" = analyzer ] || rm -r "$site/analyzer"
cat >"$root/usr/bin/$package" <<END
#!$home/bin/python -I
"""The command $package."""

import os
import sys

# Processes that it starts import nothing of the folder they are started in, nor of the caller's.
os.environ.pop("PYTHONPATH", None)
os.environ |= {"PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}

from $module.cli import main  # noqa: E402

sys.exit(main())
END
chmod 0755 "$root/usr/bin/$package"
