#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: boot.sh FOLDER    Put there what QEMU boots: vmlinuz, vmlinux, initrd, and the kernel's release. Runs in the image's root.
set -euo pipefail
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
release=$(basename /lib/modules/*-amd64)
mkdir -p "$folder"
echo "$release" >"$folder/release"
cp "/boot/vmlinuz-$release" "$folder/vmlinuz"

# The kernel as it is before compression: decompressing it takes an emulated processor 2 s at every boot.
# Where it lies in a bzImage, and the 4 bytes of its size at the end: Documentation/arch/x86/boot.rst.
number() { od -An -t "u$2" -j "$(($1))" -N "$2" "$folder/vmlinuz" | tr -d ' '; }
start=$((($(number 0x1f1 1) + 1) * 512 + $(number 0x248 4)))
length=$(($(number 0x24c 4) - 4))
dd if="$folder/vmlinuz" of="$folder/payload" iflag=skip_bytes,count_bytes skip="$start" count="$length" status=none
case $(od -An -t x1 -N 4 "$folder/payload") in
' fd 37 7a 58') xz -dc <"$folder/payload" >"$folder/vmlinux" ;; # Debian 12
' 28 b5 2f fd') zstd -q -dc <"$folder/payload" >"$folder/vmlinux" ;; # Debian 13
*)
  echo "boot.sh: unknown compression of $release" >&2
  exit 1
  ;;
esac
rm "$folder/payload"

# Debian's virtio, ext4 and 9p are modules: busybox loads those few, and init.sh mounts.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,dev,proc,sys,root,modules}
cp /bin/busybox "$work/bin/"
cp "$here/init.sh" "$work/init"
for module in virtio_pci virtio_blk virtio_net virtio_rng ext4 9pnet_virtio 9p; do
  modprobe -S "$release" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
  name=$(basename "$file" .xz)
  case $file in
  *.xz) xz -dc "$file" >"$work/modules/$name" ;; # Debian 13
  *) cp "$file" "$work/modules/$name" ;;
  esac
  echo "$name" >>"$work/modules/order"
done
cd "$work"
find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >"$folder/initrd"
