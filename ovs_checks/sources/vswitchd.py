# SPDX-License-Identifier: Apache-2.0
"""The rim: asks a live Open vSwitch for what it holds, bounded in time and in bytes.

vswitchd and ovsdb-server both speak JSON-RPC on Unix sockets, so one small client serves both. It
stands in for `ovs.unixctl.client`, which waits for ever for a vswitchd that hangs and reads replies
of any length. Only flows cost a process, one short `ovs-ofctl` per bridge: the unixctl command
`bridge/dump-flows` leaves out the cookies.
"""

import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.model.unixctl import VSWITCHD, Call, control_sockets, pid_file, pid_of, sockets
from ovs_checks.openflow.kept import KeptTables
from ovs_checks.openflow.notation import format_header
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import Dump, parse_dump
from ovs_checks.switch.assemble import Row, assemble
from ovs_checks.switch.rows import TABLES
from ovs_checks.switch.snapshot import Snapshot

_VERSIONS = ",".join(f"OpenFlow1{minor}" for minor in range(6))
"""The newest that the bridge has is chosen; OpenFlow 1.0 would hide write_actions."""


class Vswitchd:
    """The Open vSwitch of a host, found by its run directory.

    Every method raises `CapabilityMissing` if no Open vSwitch is there, `Unreachable` if it does
    not answer in time, and `RemoteProtocolError` for an answer that is refused or makes no sense.
    """

    def __init__(
        self, rundir: Path, *, timeout_s: float = 5.0, max_bytes: int = 256 * 1024 * 1024
    ) -> None:
        self._rundir = rundir
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    def command(self, name: str, *arguments: str) -> str:
        """Run one of the commands that `ovs-appctl` can run; return its output."""
        result = self._ask(self._control_sockets(), name, arguments)
        if not isinstance(result, str):
            raise RemoteProtocolError(f"{name}: text expected, not {type(result).__name__}")
        return result

    def trace(self, bridge: str, packet: Header | str) -> str:
        """Return what Open vSwitch itself says of a packet: the output of `ofproto/trace`."""
        flow = format_header(packet) if isinstance(packet, Header) else packet
        return self.command("ofproto/trace", bridge, flow)

    def dump_flows(self, bridge: str, ports: Mapping[str, int] | None = None) -> Dump:
        """Read the flow tables of `bridge`."""
        return parse_dump(self.ofctl("dump-flows", bridge), ports, source="flows")

    def snapshot(
        self,
        host: str,
        *,
        bridges: Iterable[str] | None = None,
        wall_ns: int | None = None,
        kept: dict[str, KeptTables] | None = None,
    ) -> Snapshot:
        """Read ports, flows, groups and learned addresses of all bridges, or of `bridges` only.

        For `kept` see `assemble`.
        """
        taken_ns = time.time_ns() if wall_ns is None else wall_ns
        return assemble(self, host, bridges=bridges, wall_ns=taken_ns, kept=kept)

    def rows(self) -> dict[str, list[Row]]:
        """Read the columns of `TABLES` in one transaction."""
        operations = [
            {"op": "select", "table": table, "where": [], "columns": columns}
            for table, columns in TABLES.items()
        ]
        result = self._ask([self._rundir / "db.sock"], "transact", ["Open_vSwitch", *operations])
        try:
            return {table: answer["rows"] for table, answer in zip(TABLES, result, strict=True)}
        except (KeyError, TypeError, ValueError) as e:
            raise RemoteProtocolError(f"OVSDB: {str(result)[:200]}") from e

    def _control_sockets(self) -> list[Path]:
        pid = None
        with suppress(OSError, UnicodeDecodeError):
            pid = pid_of((self._rundir / pid_file(VSWITCHD)).read_text())
        found = [path.name for path in self._rundir.glob(sockets(VSWITCHD))]
        return [self._rundir / name for name in control_sockets(VSWITCHD, pid, found)]

    def _absent(self) -> CapabilityMissing:
        return CapabilityMissing(
            "Open vSwitch", f"start ovsdb-server and ovs-vswitchd; none runs in {self._rundir}"
        )

    def _ask(self, paths: Sequence[Path], method: str, params: Sequence[Any]) -> Any:
        """Send one JSON-RPC request to the first of `paths` where somebody listens."""
        deadline = time.monotonic() + self._timeout_s
        for path in paths:
            try:
                return self._call(path, Call(method, params, max_bytes=self._max_bytes), deadline)
            except TimeoutError as e:
                raise Unreachable(str(path), "timeout") from e
            except (FileNotFoundError, ConnectionRefusedError):
                continue
            except OSError as e:
                raise Unreachable(str(path), str(e)) from e
        raise self._absent()

    def _call(self, path: Path, call: Call, deadline: float) -> Any:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(self._timeout_s)
            sock.connect(str(path))
            sock.sendall(call.request)
            while not call.feed(sock.recv(65536)):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                sock.settimeout(left_s)
        return call.result

    def ofctl(self, command: str, bridge: str) -> str:
        """Run `ovs-ofctl` on the bridge's management socket; return what it prints."""
        target = self._rundir / f"{bridge}.mgmt"
        if not target.exists():
            raise self._absent()
        limit = f"--timeout={max(1, round(self._timeout_s))}"
        if command == "show":  # of OpenFlow 1.0, unless the bridge is set to newer ones only
            with suppress(Unreachable):
                return self._run_ofctl([limit, "-O", "OpenFlow10", command], target)
        return self._run_ofctl([limit, "-O", _VERSIONS, command], target)

    def _run_ofctl(self, words: Iterable[str], target: Path) -> str:
        argv = ["ovs-ofctl", "--no-names", *words, f"unix:{target}"]
        try:
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except FileNotFoundError as e:
            raise CapabilityMissing("ovs-ofctl", "install openvswitch-common (Debian)") from e
        with process:
            output = process.stdout.read(self._max_bytes + 1) if process.stdout else b""
            if len(output) > self._max_bytes:
                process.kill()
                raise RemoteProtocolError(f"{target}: over {self._max_bytes} bytes")
        text = output.decode(errors="replace")
        if process.returncode:
            reason = text.strip().rpartition("\n")[2] or f"ovs-ofctl ended {process.returncode}"
            raise Unreachable(str(target), reason[:200])
        return text
