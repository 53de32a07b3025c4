#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: system.sh    Settings of every guest; runs in a chroot too. Running it twice is the same as once.
set -euo pipefail

# The lab starts its own Open vSwitch in namespaces; the system's would only be in its way.
policy=/usr/sbin/policy-rc.d
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod +x "$policy"

# Soft-RoCE pins what it registers.
mkdir -p /etc/security/limits.d
printf '* - memlock unlimited\nroot - memlock unlimited\n' >/etc/security/limits.d/netagent.conf

# Kernel addresses in /proc/kallsyms are what kprobes are placed by.
mkdir -p /etc/sysctl.d
echo 'kernel.kptr_restrict = 0' >/etc/sysctl.d/netagent.conf
