#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Process 1 of a QEMU guest once its root is there: mount, set up, run the job, hand back its exit code, power off.
# Where the job asks for systemd, that is process 1 instead, and the job a service of it: `guest.sh job`.
# Jobs come in the shared folder /run/netagent-vm (vagrant/vm/guest.py writes and reads it):
#   tree venv hostname job.sh interactive systemd   in
#   up stdout stderr exit             out
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=${TERM:-linux} LANG=C.UTF-8
job=/run/netagent-vm
tree=$(cat $job/tree)

set_up() {
  mkdir -p /run/lock /dev/pts /dev/shm
  mount -t devpts -o gid=5,mode=620 devpts /dev/pts
  mount -t tmpfs shm /dev/shm
  mount -t tracefs tracing /sys/kernel/tracing
  mount -t debugfs debug /sys/kernel/debug
  mount -t bpf bpf /sys/fs/bpf
  mount -t cgroup2 cgroup /sys/fs/cgroup
  ln -sf /proc/self/fd /dev/fd
  ip link set lo up
  hostname "$(cat $job/hostname)"
  printf '127.0.0.1 localhost %s\n' "$(cat $job/hostname)" >/etc/hosts
  ulimit -l unlimited
  modprobe tun # /dev/net/tun: nobody here loads it at its first use
  sysctl -q -p /etc/sysctl.d/netagent.conf
  # The console is for what went wrong, and what a killed guest wrote shall have reached the tree.
  sysctl -qw kernel.printk='3 4 1 3' vm.dirty_writeback_centisecs=100 vm.dirty_expire_centisecs=100
  if [ "$(cat $job/venv)" = image ]; then
    /bin/bash "$tree/vagrant/provision/project.sh" "$tree"
  fi
}

run_job() {
  if [ -e $job/interactive ]; then
    setsid -c -w /bin/bash $job/job.sh </dev/ttyS0 >/dev/ttyS0 2>&1
  else
    /bin/bash $job/job.sh </dev/null >>$job/stdout 2>>$job/stderr
  fi
}

become_systemd() {
  mkdir -p /run/systemd/system/multi-user.target.wants
  cat >/run/systemd/system/netagent-vm.service <<END
[Unit]
Description=what the guest was booted for
[Service]
Type=oneshot
TimeoutStartSec=infinity
StandardOutput=journal+console
ExecStart=/bin/bash $tree/vagrant/provision/guest.sh job
END
  ln -s ../netagent-vm.service /run/systemd/system/multi-user.target.wants/
  exec /lib/systemd/systemd
}

if [ "${1:-}" != job ]; then
  set_up
  if [ -e $job/systemd ]; then become_systemd; fi
fi
uname -r >$job/up.part && mv $job/up.part $job/up
run_job
code=$?
sync
# Last, and whole at once: who reads it may switch the guest off.
echo $code >$job/exit.part && mv $job/exit.part $job/exit
echo o >/proc/sysrq-trigger
sleep infinity # process 1 must not end before the power does
