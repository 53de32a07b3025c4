#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: project.sh TREE    At every boot: the guest's own virtual environment becomes TREE/.venv, with TREE installed in it.
set -euo pipefail
tree=$1
venv=/opt/netagent/venv
packages=$(echo "$venv"/lib/python3.*/site-packages)
echo "$tree" >"$packages/netagent-tree.pth"

# The commands of pyproject.toml's [project.scripts]: lines such as `netagent = "netagent.cli:main"`.
sed -n '/^\[project.scripts\]/,/^\[[^p]/s/^\([a-z-]*\) = "\(.*\):\(.*\)"$/\1 \2 \3/p' "$tree/pyproject.toml" |
  while read -r name module function; do
    printf '#!%s\nimport sys\nfrom %s import %s\nsys.exit(%s())\n' \
      "$venv/bin/python" "$module" "$function" "$function" >"$venv/bin/$name"
    chmod +x "$venv/bin/$name"
  done

touch "$venv/.installed" # for make: it is up to date
mkdir -p "$tree/.venv"
mountpoint -q "$tree/.venv" || mount --bind "$venv" "$tree/.venv"
