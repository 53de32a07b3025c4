#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/apart.sh COMMAND...    Run it, as root, where nothing but files is shared with others: processes, networks
# and /run are its own. So labs, of which a machine holds one, stand side by side; what is left of one ends with COMMAND.
set -euo pipefail
# The shell stays: as process 1 it takes leave of daemons that end.
# shellcheck disable=SC2016
exec unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc bash -c '
  mount -t tmpfs -o mode=755 run /run
  mkdir -p /run/netns /run/lock /run/shm
  ip link set lo up
  "$@"
  exit $?' apart "$@"
