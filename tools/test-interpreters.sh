#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The agent's hermetic tests on each Python that it takes and this machine has, beside its own one.
set -eu
cd "$(dirname "$0")/.."

interpreter() { # one that runs: a shim of pyenv is there for versions that are not
    for found in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
        if "$found" -c '' 2>/dev/null; then command -v "$found"; return; fi
    done
}

mkdir -p build/interpreters
pins=build/interpreters/pins.txt # what the agent runs on; tools of tests have versions of their own for 3.10
sed -n 's/^\(httpx\|msgpack\|msgspec\|ovs\|pyroute2\|structlog\|uvicorn\)\(\[.*\]\)\{0,1\}==\([^ ]*\) .*/\1==\3/p' \
    requirements.lock >"$pins"
failed=""
for version in 3.10 3.12 3.13; do
    python=$(interpreter "$version")
    if [ -z "$python" ]; then
        echo "python$version: not here; its distribution's package or pyenv install $version"
        continue
    fi
    environment="build/interpreters/$version"
    "$python" -m venv "$environment"
    "$environment/bin/pip" install -q -c "$pins" . pytest pytest-xdist hypothesis numpy "ovs[flow]" typing_extensions
    "$environment/bin/pip" uninstall -q -y netagent # what is tested is what is here
    echo "python$version: $("$python" --version), $python"
    "$environment/bin/python" -m pytest -q -n 2 --dist worksteal -p no:cacheprovider \
        -m "not (netns or ovs or lab or kernel or rdma or packages) and not vm" \
        tests/netagent tests/bpf tests/ovs_checks || failed="$failed $version"
done
if [ -n "$failed" ]; then echo "failed on$failed"; exit 1; fi
