#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/setup.sh VENV DEBIAN_PACKAGE...
# Installs what is missing of the Debian packages (root only), then a virtual environment of the distribution's Python
# (no VENV: packages only).
set -euo pipefail
venv=$1
shift

missing=()
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  if [ "$(id -u)" -ne 0 ]; then
    echo "missing Debian packages: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  # The lab starts its own Open vSwitch in namespaces: the system's service is not started by installing it.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

[ -n "$venv" ] || exit 0

# System site packages: bcc and pyverbs come from Debian, for Debian's Python.
[ -x "$venv/bin/python" ] || /usr/bin/python3 -m venv --system-site-packages "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check --ignore-installed --require-hashes -r requirements.lock
"$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
