#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: packages.sh    Install packages.txt on a running Debian (Vagrant; QEMU images get the list from mmdebstrap).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/system.sh" # first: Open vSwitch must not be started by its installation
mapfile -t packages < <(sed 's/#.*//' "$here/packages.txt" | grep -v '^ *$')
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}"
