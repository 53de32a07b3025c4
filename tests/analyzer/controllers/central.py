# SPDX-License-Identifier: Apache-2.0
"""A central of OVN without OVN: ovsdb-server with its two databases, filled by transactions."""

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import Capability
from tests.waiting import wait_until

SCHEMAS = Path(os.environ.get("NETAGENT_OVN_SCHEMAS", "/usr/share/ovn"))
"""Folder of OVN's schemas."""
OVSDB = Capability(
    "ovn-schemas",
    "apt-get install openvswitch-switch ovn-central",
    lambda: (
        all(map(shutil.which, ("ovsdb-server", "ovsdb-tool")))
        and all((SCHEMAS / f"ovn-{each}.ovsschema").exists() for each in ("nb", "sb"))
    ),
)
NB, SB = "OVN_Northbound", "OVN_Southbound"
FILES = {NB: "nb", SB: "sb"}


class Central:
    """One server of both databases, with its files in `folder`."""

    def __init__(
        self,
        folder: Path,
        *remotes: str,
        options: Sequence[str] = (),
        lacking: dict[str, list[str]] | None = None,
    ) -> None:
        """Listen at remotes as ovsdb-server(1) takes them, besides a socket in the folder.

        `lacking` are columns, by table, that its schemas do not have.
        """
        self.folder = folder
        self._options = [*(f"--remote={each}" for each in remotes), *options]
        self._server: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES.values():
            schema = json.loads((SCHEMAS / f"ovn-{name}.ovsschema").read_text())
            for table, columns in (lacking or {}).items():
                for column in columns:
                    schema["tables"].get(table, {"columns": {}})["columns"].pop(column, None)
            schema.pop("cksum", None)
            (folder / f"{name}.ovsschema").write_text(json.dumps(schema))
            made = [str(folder / f"{name}.{end}") for end in ("db", "ovsschema")]
            subprocess.run(["ovsdb-tool", "create", *made], check=True, capture_output=True)

    @property
    def remote(self) -> str:
        """Return where a client finds it."""
        return f"unix:{self.folder / 'db.sock'}"

    @property
    def pid(self) -> int:
        """Return the server's."""
        assert self._server is not None
        return self._server.pid

    def start(self) -> None:
        """Run the server; it serves what it served before."""
        at = self.folder
        (at / "db.sock").unlink(missing_ok=True)
        self._server = subprocess.Popen(
            [
                "ovsdb-server", *(at / f"{name}.db" for name in FILES.values()),
                f"--remote=punix:{at / 'db.sock'}", *self._options,
                f"--unixctl={at / 'ctl'}", "-vconsole:off",
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._listens, "ovsdb-server")

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.folder / "db.sock")) == 0

    def port(self) -> int:
        """Return the TCP port of its one remote that has any."""
        listening = subprocess.run(
            ["ss", "-Hltnp"], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        (line,) = (each for each in listening if f"pid={self.pid}," in each)
        return int(line.split()[3].rpartition(":")[2])

    def kill(self) -> None:
        """End the server without a word."""
        if self._server is not None:
            self._server.send_signal(signal.SIGKILL)
            self._server.wait()
            self._server = None

    def transact(self, database: str, *operations: dict[str, Any]) -> list[Any]:
        """Return what came of operations that all had to succeed."""
        return _transact(self.folder / "db.sock", database, *operations)


class Cluster:
    """Three members that serve both databases, with their files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self.remotes = [f"unix:{self._socket(number)}" for number in range(3)]
        for number in range(3):
            (folder / str(number)).mkdir()
        for database, name in FILES.items():
            at = [f"tcp:127.0.0.1:{_free_port()}" for _ in range(3)]
            schema = str(SCHEMAS / f"ovn-{name}.ovsschema")
            for number, local in enumerate(at):
                file = str(folder / str(number) / f"{name}.db")
                create = ["create-cluster", file, schema, local]
                how = ["join-cluster", file, database, local, at[0]] if number else create
                subprocess.run(["ovsdb-tool", *how], check=True, capture_output=True)
        for number in range(3):
            self._start(number)

    def _start(self, number: int) -> None:
        at = self._folder / str(number)
        self._servers[number] = subprocess.Popen(
            [
                "ovsdb-server", *(str(at / f"{name}.db") for name in FILES.values()),
                f"--remote=p{self.remotes[number]}", f"--unixctl={at / 'ctl'}", "-vconsole:off",
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _socket(self, number: int) -> Path:
        return self._folder / str(number) / "db.sock"

    @property
    def members(self) -> list[int]:
        """Return those that live."""
        return sorted(self._servers)

    def is_whole(self) -> bool:
        """Tell whether all members have joined and know of a leader, for both databases."""
        said = [self._status(number, database) for number in self.members for database in FILES]
        return all("Status: cluster member" in each and "Leader: unknown" not in each
                   for each in said)  # fmt: skip

    def leader(self, database: str) -> int:
        """Return the member that leads for a database."""
        wait_until(lambda: self._leaders(database), "a leader", 30.0)
        return self._leaders(database)[0]

    def _leaders(self, database: str) -> list[int]:
        return [each for each in self.members if "Role: leader" in self._status(each, database)]

    def _status(self, number: int, database: str) -> str:
        asked = ["ovs-appctl", "-t", str(self._folder / str(number) / "ctl"), "cluster/status"]
        said = subprocess.run([*asked, database], check=False, capture_output=True, text=True)
        return said.stdout

    def kill(self, number: int) -> None:
        """End a member without a word."""
        server = self._servers.pop(number)
        server.kill()
        server.wait()

    def transact(self, database: str, *operations: dict[str, Any]) -> list[Any]:
        """Return what came of operations that all had to succeed, by its leader."""
        return _transact(self._socket(self.leader(database)), database, *operations)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _transact(at: Path, database: str, *operations: dict[str, Any]) -> list[Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(at))
        asked = {"method": "transact", "params": [database, *operations], "id": 1}
        connection.sendall(json.dumps(asked).encode())
        said = b""
        while True:
            said += connection.recv(1 << 20)
            try:
                answer = json.loads(said)
                break
            except ValueError:
                continue
    results: list[Any] = answer["result"]
    failed = [each for each in results if each and "error" in each]
    assert not failed, failed
    return results


def insert(table: str, name: str = "", /, **row: Any) -> dict[str, Any]:
    """Return an operation; `name` is what others of its transaction call the row."""
    made = {"op": "insert", "table": table, "row": {key: _value(each) for key, each in row.items()}}
    return {**made, "uuid-name": name} if name else made


def update(table: str, where: Sequence[Any], /, **row: Any) -> dict[str, Any]:
    """Return an operation on the rows of which one column is something."""
    row = {key: _value(each) for key, each in row.items()}
    return {"op": "update", "table": table, "where": [where], "row": row}


def named(name: str) -> list[str]:
    """Return a reference to a row of the same transaction."""
    return ["named-uuid", name]


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return ["map", list(map(list, value.items()))]
    if isinstance(value, tuple):
        return ["set", list(value)]
    return value


def fill(central: Central | Cluster, *, ports: int, chassis: int, switches: int) -> None:
    """Write `ports` ports on `switches` networks, each bound to one of `chassis`.

    Their rows are as ovn-kubernetes and northd write them.
    """
    per = ports // switches
    for switch in range(switches):
        made = [_port(switch * per + number, switch, chassis) for number in range(per)]
        references = tuple(named(f"p{switch * per + number}") for number in range(per))
        central.transact(NB, *made, insert("Logical_Switch", name=f"ls{switch}", ports=references))
    central.transact(NB, insert("NB_Global", nb_cfg=1))
    central.transact(SB, insert("SB_Global", nb_cfg=1), *_chassis(chassis))
    found = [
        {"op": "select", "table": table, "where": [], "columns": ["_uuid", name]}
        for table, name in (("Chassis", "name"), ("Encap", "chassis_name"))
    ]
    hosts, encaps = (
        {row[name]: row["_uuid"] for row in said["rows"]}
        for said, name in zip(central.transact(SB, *found), ("name", "chassis_name"), strict=True)
    )
    for switch in range(switches):
        made = [insert("Datapath_Binding", "d", tunnel_key=switch + 1)]
        for number in range(switch * per, (switch + 1) * per):
            host = f"node-{number % chassis}"
            made.append(_binding(number, switch, hosts[host], encaps[host]))
        central.transact(SB, *made)


def _port(number: int, switch: int, chassis: int) -> dict[str, Any]:
    mac, address = addresses_of(number)
    return insert(
        "Logical_Switch_Port", f"p{number}",
        name=f"ns{switch}_pod-{number}", addresses=f"{mac} {address}",
        port_security=f"{mac} {address}",
        external_ids={"pod": "true", "namespace": f"ns{switch}",
                      "k8s.ovn.org/nad": f"ns{switch}/rail{number % 8}",
                      "k8s.ovn.org/network": f"rail{number % 8}"},
        options={"requested-chassis": f"node-{number % chassis}",
                 "iface-id-ver": f"0a1b2c3d-0000-0000-0000-{number:012d}"},
    )  # fmt: skip


def addresses_of(number: int) -> tuple[str, str]:
    """Return hardware and IP address of a port."""
    high, low = divmod(number, 256)
    return f"02:00:00:00:{high:02x}:{low:02x}", f"10.0.{high}.{low}"


def _chassis(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        name, address = f"node-{number}", f"172.30.{number >> 8}.{number & 255}"
        yield insert("Encap", f"e{number}", type="geneve", ip=address, chassis_name=name)
        yield insert("Chassis", f"c{number}", name=name, hostname=name, encaps=named(f"e{number}"))
        yield insert(
            "Chassis_Private", name=name, chassis=named(f"c{number}"), nb_cfg=1,
            nb_cfg_timestamp=1_795_000_000_000,
        )  # fmt: skip


def _binding(number: int, switch: int, host: Any, encap: Any) -> dict[str, Any]:
    mac, address = addresses_of(number)
    return insert(
        "Port_Binding", logical_port=f"ns{switch}_pod-{number}", datapath=named("d"),
        tunnel_key=number % 30_000 + 1, chassis=host, encap=encap, up=True, mac=f"{mac} {address}",
        external_ids={"pod": "true", "namespace": f"ns{switch}",
                      "k8s.ovn.org/nad": f"ns{switch}/rail{number % 8}"},
    )  # fmt: skip
