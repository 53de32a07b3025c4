#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/try-wheel.sh WHEEL
# Installs WHEEL as an operator would, into an empty virtual environment with what requirements.lock pins, and runs its
# commands from a folder where nothing of this tree can be imported: first without the analyzer's extra, then with it.
set -euo pipefail
wheel=$(realpath "$1")
lock=$(realpath "$(dirname "$0")/../requirements.lock")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset PYTHONPATH
# pip takes no constraint with an extra or, beside a wheel without one, with a hash.
grep -oE '^[a-z0-9._-]+(\[[^]]*\])?==[^ ]+' "$lock" | sed -E 's/\[[^]]*\]//' >pinned.txt

# install EXTRAS    The wheel, and of what it needs the versions in the lock.
install() {
  venv/bin/pip install -q --disable-pip-version-check -c pinned.txt "netagent$1 @ file://$wheel"
}

# refused STATUS SENTENCE COMMAND...    The command ends with STATUS, says SENTENCE, and shows no traceback.
refused() {
  local wanted=$1 sentence=$2 status=0
  shift 2
  "$@" >said 2>&1 || status=$?
  if [ "$status" -ne "$wanted" ] || ! grep -qF -- "$sentence" said || grep -q Traceback said; then
    echo "try-wheel: $*: exit $status instead of $wanted, or not the sentence: $sentence" >&2
    cat said >&2
    exit 1
  fi
}

/usr/bin/python3 -m venv venv
install ""
printf 'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:8420"\n' >agent.toml
printf 'listen = "127.0.0.1:0"\ndatabase = "netagent.duckdb"\n' >analyzer.toml

venv/bin/netagent --version
venv/bin/netagent --help >/dev/null
venv/bin/netagent check-config agent.toml >/dev/null
venv/bin/netagent-analyzer --help >/dev/null
venv/bin/netagent-analyzer alerts | cmp - venv/lib/python3*/site-packages/analyzer/alerts/netagent.rules.yml
# The kernel programs came along: their texts are put together when a trace is asked for.
venv/bin/python -c 'from bpf.kernel import loader; from bpf.trace import programs; loader.source(programs.PROGRAMS.values())'
refused 2 "install the analyzer's extra: pip install 'netagent[analyzer]'" \
  venv/bin/netagent-analyzer serve --config x

install "[analyzer]"
venv/bin/netagent-analyzer check-config --config analyzer.toml >/dev/null
# The page came along.
venv/bin/python -c 'from analyzer.server.page.files import files; assert {"index.html", "page.css", "main.js", "favicon.svg"} <= files().keys()'
echo "try-wheel: $(basename "$wheel") works, without the analyzer's extra and with it"
