#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# First process of a QEMU guest: find the root, mount what the host shares, go on with guest.sh of the shared tree.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in $($b cat /modules/order); do
  $b insmod "/modules/$module" || echo "init: $module does not load"
done

tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 200 ]; do
  $b sleep 0.05
  tries=$((tries + 1))
done
$b mount -t ext4 -o noatime /dev/vda /root
# Before the tree, which may be below one of them.
$b mount -t tmpfs run /root/run
$b mount -t tmpfs tmp /root/tmp

$b mkdir /root/run/netagent-vm
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none job /root/run/netagent-vm
tree=$($b cat /root/run/netagent-vm/tree)
$b mkdir -p "/root$tree"
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose tree "/root$tree"

for each in dev proc sys; do
  $b mount --move /$each /root/$each
done
exec $b switch_root /root /bin/bash "$tree/vagrant/provision/guest.sh"
