#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: venv.sh REQUIREMENTS_LOCK    Build the guest's own virtual environment, from this distribution's Python.
# pip is configured by its environment (PIP_NO_INDEX, PIP_FIND_LINKS, ...), as everywhere.
set -euo pipefail
lock=$1
venv=/opt/netagent/venv
rm -rf "$venv"
# System site packages: bcc and pyverbs come from Debian, for Debian's Python.
/usr/bin/python3 -m venv --system-site-packages "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check --no-cache-dir --ignore-installed --require-hashes -r "$lock"
