# SPDX-License-Identifier: Apache-2.0
"""Collects what the programs must know of this kernel; what was read of BTF is kept on disk."""

import hashlib
import importlib.util
import os
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bpf.kernel import cache
from bpf.trace.btf import Btf
from bpf.trace.layout import Layout, from_data, read_layout, to_data
from bpf.trace.programs import KernelFacts, wanted_symbols
from netagent.model.errors import RemoteProtocolError

LAYOUTS = cache.FOLDER / "layouts"
VERSION = 1
"""Version of stored layouts. Raise it with every field that `layout` reads anew."""

_CAP_SYS_ADMIN, _CAP_PERFMON, _CAP_BPF = 21, 38, 39
"""Bit numbers of capabilities: linux/capability.h."""


def read_facts(root: Path = Path("/"), layouts: Path = LAYOUTS) -> KernelFacts:
    """Return the facts of the running kernel."""
    layout, problem = _layout(root, layouts)
    return KernelFacts(
        release=os.uname().release,
        symbols=_symbols(root / "proc/kallsyms"),
        has_kprobes=(root / "sys/bus/event_source/devices/kprobe/type").exists(),
        has_bcc=importlib.util.find_spec("bcc") is not None,
        is_privileged=_is_privileged(root / "proc/self/status"),
        layout=layout,
        layout_problem=problem,
    )


def _symbols(path: Path) -> frozenset[str]:
    """Return those of the wanted symbols that the kernel has."""
    names = b"|".join(re.escape(name.encode()) for name in wanted_symbols())
    try:
        text = path.read_bytes()
    except OSError:
        return frozenset()
    found = re.findall(rb" [tT] (" + names + rb")(?=[\t\n])", text)
    return frozenset(name.decode() for name in found)


class Symbols:
    """Names of kernel addresses, as of the first question: modules come and go."""

    def __init__(self, path: Path = Path("/proc/kallsyms")) -> None:
        self._path = path
        self._names: dict[int, str] = {}

    @cached_property
    def _text(self) -> bytes:
        return self._path.read_bytes()

    def __call__(self, address: int) -> str:
        """Return `function+0x12` or `function+0x12 [module]`; the bare address if unknown."""
        if address not in self._names:
            self._names[address] = symbol_at(self._text, address)
        return self._names[address]


def symbol_at(kallsyms: bytes, address: int) -> str:
    """Return the function that `address` is in, at most a megabyte behind its start."""
    megabytes = b"|".join(b"%011x" % max(each, 0) for each in _megabytes(address))
    lines = rb"^((?:" + megabytes + rb")[0-9a-f]{5}) [tTwW] (\S+)(?:\t\[(\w+)\])?$"
    found = [
        (int(start, 16), name, module)
        for start, name, module in re.findall(lines, kallsyms, re.MULTILINE)
        if int(start, 16) <= address
    ]
    if not found:
        return f"{address:#x}"
    start, name, module = max(found, key=lambda each: each[0])
    where = f" [{module.decode('ascii', 'replace')}]" if module else ""
    return f"{name.decode('ascii', 'replace')}+{address - start:#x}{where}"


def _megabytes(address: int) -> tuple[int, int]:
    return address >> 20, (address >> 20) - 1


def _is_privileged(path: Path) -> bool:
    lines = dict(line.split(":", 1) for line in path.read_text("ascii", "replace").splitlines())
    effective = int(lines.get("CapEff", "0").strip(), 16)
    return bool(
        effective >> _CAP_SYS_ADMIN & 1 or effective >> _CAP_BPF & effective >> _CAP_PERFMON & 1
    )


def _layout(root: Path, layouts: Path) -> tuple[Layout | None, str]:
    btf = root / "sys/kernel/btf"
    if not (btf / "vmlinux").exists():
        return None, "the kernel has no BTF"
    name = identity(root)
    with suppress(RemoteProtocolError):
        if (data := cache.get(layouts, name)) is not None:
            return from_data(data), ""
    try:
        kernel = Btf((btf / "vmlinux").read_bytes())
        switch = btf / "openvswitch"
        layout = read_layout(kernel, Btf(switch.read_bytes(), kernel) if switch.exists() else None)
    except (OSError, RemoteProtocolError) as error:
        return None, f"the kernel's BTF cannot be used: {error}"
    cache.put(layouts, name, to_data(layout))
    return layout, ""


def identity(root: Path = Path("/")) -> str:
    """Return a name for this build of the kernel and of openvswitch."""
    digest = hashlib.sha256(f"{VERSION} {os.uname().release}".encode())
    for name in ("sys/kernel/notes", "sys/module/openvswitch/notes/.note.gnu.build-id"):
        with suppress(OSError):
            digest.update((root / name).read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()[:32]
