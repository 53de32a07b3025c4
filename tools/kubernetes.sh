#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Build a real Kubernetes API server, and take etcd, from Debian's packages into FOLDER: tools/kubernetes.sh FOLDER
#
# Debian packages no API server, but its source package has all of the tree with what it depends on. Nothing is
# installed, and nobody else's list of packages changes: apt is given lists of its own. Once built, this is quick.
set -euo pipefail
folder=$(mkdir -p "$1" && realpath "$1")
[ -x "$folder/kube-apiserver" ] && [ -x "$folder/etcd" ] && exit 0

work=$folder/build
mkdir -p "$work"/{lists/partial,archives/partial,packages,go/src/k8s.io}
cd "$work"
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | sed -n 1p)}
[ -n "$mirror" ] || { echo "apt has no list of Debian 12: name a mirror in DEBIAN_MIRROR" >&2; exit 1; }
keys=/usr/share/keyrings/debian-archive-keyring.gpg
printf '%s [signed-by=%s] %s bookworm main\n' deb $keys "$mirror" deb-src $keys "$mirror" > sources.list
options=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives" -o Dir::Etc::preferencesparts=/dev/null
  -o APT::Sandbox::User= -o Acquire::Languages=none)
apt-get "${options[@]}" update
(cd packages && apt-get "${options[@]}" download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server)
apt-get "${options[@]}" source --download-only kubernetes
for package in packages/*.deb; do dpkg-deb -x "$package" root; done
tree=$work/go/src/k8s.io/kubernetes
mkdir -p "$tree"
tar -x -C "$tree" --strip-components=1 -f kubernetes_*.orig.tar.*

# What is vendored dies by SIGSEGV on Go 1.18 and later, at the first answer that holds a map.
rm -rf "$tree/vendor/github.com/modern-go/reflect2"
cp -r root/usr/share/gocode/src/github.com/modern-go/reflect2 "$tree/vendor/github.com/modern-go/"

export GOROOT=$work/root/usr/lib/go-1.19 GOPATH=$work/go GOCACHE=$work/cache GOPROXY=off GO111MODULE=off CGO_ENABLED=0
go=$GOROOT/bin/go
cd "$tree"
# One file is generated, and not in the source package.
"$go" build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
kinds=$(grep -rl --include=*.go '+k8s:openapi-gen=' pkg staging/src plugin cmd | grep -v -e _test.go -e /testdata/ -e sample- -e code-generator |
  xargs -n1 dirname | sort -u | sed 's|^staging/src/|k8s.io/kubernetes/vendor/|; /^k8s.io/!s|^|k8s.io/kubernetes/|' | paste -sd,)
PATH=$GOROOT/bin:$PATH "$work/openapi-gen" -O zz_generated.openapi --go-header-file hack/boilerplate/boilerplate.generatego.txt \
  --output-base "$GOPATH/src" -p k8s.io/kubernetes/pkg/generated/openapi -i "$kinds" -r "$work/violations"
version=k8s.io/kubernetes/vendor/k8s.io/component-base/version
"$go" build -ldflags "-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20" \
  -o "$work/kube-apiserver" ./cmd/kube-apiserver

cp "$work/root/usr/bin/etcd" "$folder/etcd"
mv "$work/kube-apiserver" "$folder/kube-apiserver"
cd "$folder" && chmod -R u+w "$work" && rm -rf "$work"
