# SPDX-License-Identifier: Apache-2.0
"""The only door to bcc: compiles, makes maps, loads, attaches and reads.

Everything is attached by file descriptors (perf events and raw tracepoints), so the kernel takes
all of it down with the process, however that ends.
"""

import ctypes as ct
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from bpf.trace.compiled import ARRAY, PERCPU_ARRAY, Compiled, Function, Map, linked, unlinked
from netagent.model.errors import CapabilityMissing

_KPROBE, _RAW_TRACEPOINT = 2, 17  # enum bpf_prog_type
_LICENSE = b"GPL"  # of the programs, which are dual-licensed


class Bcc:
    """libbcc, with the functions that its own Python does not declare.

    Raises CapabilityMissing where it is not installed.
    """

    def __init__(self) -> None:
        try:
            import bcc  # noqa: PLC0415 - only where a trace runs; PyPI's `bcc` is another
            from bcc import libbcc, utils  # noqa: PLC0415 - the same
        except ImportError as error:
            raise CapabilityMissing("eBPF", "apt-get install python3-bpfcc") from error
        self.version = str(bcc.__version__)
        self.possible_cpus = len(utils.get_possible_cpus())
        self.lib = lib = libbcc.lib
        self.ring_callback = libbcc._RINGBUF_CB_TYPE  # noqa: SLF001 - it has no other name
        self._compile = bcc.BPF
        lib.bpf_num_tables.restype = ct.c_size_t
        lib.bpf_num_tables.argtypes = [ct.c_void_p]
        lib.bpf_table_name.restype = ct.c_char_p
        lib.bpf_table_name.argtypes = [ct.c_void_p, ct.c_size_t]
        for function in (lib.bpf_table_key_size, lib.bpf_table_leaf_size):
            function.restype = ct.c_size_t
            function.argtypes = [ct.c_void_p, ct.c_char_p]
        lib.bcc_create_map.argtypes = [ct.c_int, ct.c_char_p, *[ct.c_int] * 4]
        words = [ct.c_int, ct.c_char_p, ct.c_char_p, ct.c_int, ct.c_char_p, ct.c_uint]
        lib.bcc_prog_load.argtypes = [*words, ct.c_int, ct.c_char_p, ct.c_uint]

    def compile(self, text: str, flags: Iterable[str]) -> Compiled:
        """Return what the compiler makes of `text`; raises CapabilityMissing if nothing."""
        try:
            module = self._compile(text=text.encode(), cflags=[*flags, "-w"])
        except Exception as error:  # bcc raises nothing more specific
            remedy = "apt-get install linux-headers-$(uname -r), and see what the compiler printed"
            raise CapabilityMissing(f"eBPF ({error})", remedy) from error
        try:
            return self._extract(module.module)
        finally:
            module.cleanup()

    def _extract(self, module: Any) -> Compiled:
        lib = self.lib
        names = [lib.bpf_table_name(module, n) for n in range(lib.bpf_num_tables(module))]
        maps = tuple(
            Map(
                name.decode("ascii"),
                lib.bpf_table_type_id(module, lib.bpf_table_id(module, name)),
                lib.bpf_table_key_size(module, name),
                lib.bpf_table_leaf_size(module, name),
                lib.bpf_table_max_entries_id(module, lib.bpf_table_id(module, name)),
                lib.bpf_table_flags_id(module, lib.bpf_table_id(module, name)),
            )
            for name in names
        )
        descriptors = {lib.bpf_table_fd(module, name): name.decode("ascii") for name in names}
        functions = []
        for number in range(lib.bpf_num_functions(module)):
            name = lib.bpf_function_name(module, number)
            start, length = (
                lib.bpf_function_start(module, name),
                lib.bpf_function_size(module, name),
            )
            code = ct.string_at(start, length)
            functions.append(unlinked(name.decode("ascii"), code, descriptors))
        return Compiled(maps, tuple(functions))

    def make(self, made: Map) -> int:
        """Make a map and return its descriptor; raises OSError."""
        words = (made.key_bytes, made.leaf_bytes, made.entries, made.flags)
        return _checked(self.lib.bcc_create_map(made.kind, made.name.encode(), *words), made.name)

    def load(self, function: Function, descriptors: dict[str, int], *, raw_tracepoint: bool) -> int:
        """Load a program and return its descriptor; raises OSError where the kernel refuses it."""
        code = linked(function, descriptors)
        kind = _RAW_TRACEPOINT if raw_tracepoint else _KPROBE
        words = (kind, function.name.encode(), code, len(code), _LICENSE, 0, 0, None, 0)
        return _checked(self.lib.bcc_prog_load(*words), function.name)

    def attach(self, program: int, kind: str, symbol: str) -> int:
        """Attach a program and return the descriptor that keeps it there; raises OSError."""
        if kind == "raw_tracepoint":
            found = self.lib.bpf_attach_raw_tracepoint(program, symbol.encode())
        else:
            returns = int(kind == "kretprobe")
            name = f"{'r' if returns else 'p'}_{symbol}".encode()
            words = (program, returns, name, symbol.encode(), 0, 0)
            found = self.lib.bpf_attach_kprobe(*words)
        return _checked(found, symbol)


class Table:
    """A map's content."""

    def __init__(self, bcc: Bcc, made: Map, descriptor: int) -> None:
        self._lib, self._map, self._descriptor = bcc.lib, made, descriptor
        self._key = ct.create_string_buffer(made.key_bytes)
        per_cpu = made.kind == PERCPU_ARRAY
        self._copies = bcc.possible_cpus if per_cpu else 1
        # The kernel gives each CPU's value eight bytes or a multiple (linux/bpf.h).
        self._stride = -(-made.leaf_bytes // 8) * 8 if per_cpu else made.leaf_bytes
        self._leaf = ct.create_string_buffer(self._stride * self._copies)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value); some twice, and others not, where entries go meanwhile."""
        before = None
        for _ in range(self._map.entries):
            if self._lib.bpf_get_next_key(self._descriptor, before, self._key) != 0:
                return
            before = key = self._key.raw
            if self._lib.bpf_lookup_elem(self._descriptor, key, self._leaf) == 0:
                yield key, self._leaf.raw[: self._map.leaf_bytes]

    def at(self, index: int) -> list[bytes]:
        """Return the values at `index` of an array, one for each CPU if it has that many."""
        key = index.to_bytes(self._map.key_bytes, "little")
        if self._lib.bpf_lookup_elem(self._descriptor, key, self._leaf) != 0:
            raise OSError(ct.get_errno(), os.strerror(ct.get_errno()), self._map.name)
        starts = range(0, self._stride * self._copies, self._stride)
        return [self._leaf.raw[start : start + self._map.leaf_bytes] for start in starts]

    def put(self, key: bytes, value: bytes) -> None:
        """Store one value (of each CPU's, joined); raises OSError."""
        _checked(self._lib.bpf_update_elem(self._descriptor, key, value, 0), self._map.name)

    def clear(self) -> None:
        """Forget everything."""
        if self._map.kind in {ARRAY, PERCPU_ARRAY}:
            for index in range(self._map.entries):
                key = index.to_bytes(self._map.key_bytes, "little")
                self.put(key, bytes(self._stride * self._copies))
            return
        for key in [key for key, _ in self.rows()]:
            self._lib.bpf_delete_elem(self._descriptor, key)


class Ring:
    """A ring buffer's reader."""

    def __init__(self, bcc: Bcc, descriptor: int, receive: Callable[[bytes], None]) -> None:
        self._lib = bcc.lib

        def taken(_context: int, data: int, length: int) -> int:
            receive(ct.string_at(data, length))
            return 0

        self._taken = bcc.ring_callback(taken)  # C holds no reference to it
        self._ring = self._lib.bpf_new_ringbuf(descriptor, self._taken, None)
        if not self._ring:
            raise OSError(ct.get_errno(), "no ring buffer")

    def poll(self, *, wait_ms: int) -> None:
        """Hand on what comes within `wait_ms`."""
        self._lib.bpf_poll_ringbuf(self._ring, wait_ms)

    def consume(self) -> None:
        """Hand on what is there."""
        self._lib.bpf_consume_ringbuf(self._ring)

    def close(self) -> None:
        """Free it."""
        self._lib.bpf_free_ringbuf(self._ring)


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors; what hangs on them is detached or freed."""
    for each in descriptors:
        with suppress(OSError):
            os.close(each)


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ct.get_errno(), os.strerror(ct.get_errno()), what)
    return result
