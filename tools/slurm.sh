#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Take Slurm's daemons from Debian's packages into FOLDER, installing and starting nothing: tools/slurm.sh FOLDER
set -euo pipefail
folder=$(mkdir -p "$1" && realpath "$1")
[ -x "$folder/usr/sbin/slurmctld" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -q -o APT::Sandbox::User= download slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2
for package in *.deb; do dpkg-deb -x "$package" "$folder"; done
# As Debian's alternatives call them; under other names they run no hook, and are not found.
for name in slurmd slurmstepd slurmctld; do ln -sf "$name-wlm" "$folder/usr/sbin/$name"; done
