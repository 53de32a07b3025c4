# SPDX-License-Identifier: Apache-2.0
"""An Open vSwitch of the test's own: dummy datapath, private run directory."""

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ovs_checks.sources.vswitchd import Vswitchd

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")

GROUPS = """\
group_id=1,type=select,bucket=weight:10,output:2,bucket=output:3
group_id=2,type=ff,bucket=watch_port:2,mod_dl_dst:9::,output:2,bucket=watch_port:3,output:3
group_id=3,type=all,bucket=output:2,bucket=mod_dl_dst:8::,output:3
group_id=4,type=indirect,bucket=resubmit(,4)
group_id=5,type=select,selection_method=hash,fields(ip_src,eth_dst),bucket=weight:7,output:1,\
bucket=weight:3,output:2
group_id=6,type=ff,bucket=watch_port:9,output:2""".replace("::", ":00" * 5).splitlines()


class LiveOvs:
    """ovsdb-server and ovs-vswitchd in `rundir`."""

    def __init__(self, rundir: Path) -> None:
        self.rundir = rundir
        self.vswitchd = Vswitchd(rundir)

    def run(self, *argv: str, stdin: str = "") -> str:
        """Run a tool of Open vSwitch against this instance."""
        places = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        done = subprocess.run(
            argv,
            env={**os.environ, **dict.fromkeys(places, str(self.rundir))},
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=20,
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def vsctl(self, *arguments: str) -> str:
        """Run ovs-vsctl."""
        return self.run("ovs-vsctl", f"--db=unix:{self.rundir}/db.sock", *arguments)

    def add_bridge(self, name: str, **ports: int) -> None:
        """Add a bridge that drops what no flow matches, with dummy ports of the given numbers."""
        self.vsctl(
            *("add-br", name, "--", "set", "bridge", name),
            *("datapath_type=dummy", "fail_mode=secure"),
        )
        for port, number in ports.items():
            self.add_port(name, port, "type=dummy", f"ofport_request={number}")

    def add_port(self, bridge: str, port: str, *settings: str) -> None:
        """Add one port."""
        self.vsctl("add-port", bridge, port, "--", "set", "interface", port, *settings)

    def add_lab(self) -> None:
        """Add what pipelines of the tests use: two bridges and a patch, groups, a meter."""
        self.add_bridge("br0", p1=1, p2=2, p3=3)
        self.add_bridge("br1", q1=1, q2=2)
        self.add_port("br0", "pa", "type=patch", "options:peer=pb", "ofport_request=4")
        self.add_port("br1", "pb", "type=patch", "options:peer=pa", "ofport_request=4")
        for bridge in ("br0", "br1"):
            self.ofctl("add-tlv-map", bridge, "{class=0xffff,type=0,len=4}->tun_metadata0")
            self.ofctl("add-meter", bridge, "meter=1 kbps band=type=drop rate=1000")
            for group in GROUPS:
                self.ofctl("add-group", bridge, group)

    def ofctl(self, command: str, bridge: str, *arguments: str) -> str:
        """Run ovs-ofctl on `bridge`."""
        target = f"unix:{self.rundir}/{bridge}.mgmt"
        return self.run("ovs-ofctl", "-O", "OpenFlow15", command, target, *arguments)

    def set_flows(self, bridge: str, flows: list[str]) -> None:
        """Replace the flows of `bridge` in one transaction."""
        versions = ("-O", "OpenFlow15")
        text = "\n".join(["delete", *(f"add {flow}" for flow in flows), ""])
        target = f"unix:{self.rundir}/{bridge}.mgmt"
        self.run("ovs-ofctl", "--bundle", *versions, "add-flows", target, "-", stdin=text)


@contextmanager
def live_ovs(rundir: Path) -> Iterator[LiveOvs]:
    """Start an instance; end it, and only it, afterwards."""
    ovs = LiveOvs(rundir)
    common = ("--detach", "--no-chdir", "-vconsole:off")
    with ExitStack() as cleanup:
        ovs.run("ovsdb-tool", "create", f"{rundir}/conf.db", str(SCHEMA))
        ovs.run(
            *("ovsdb-server", f"{rundir}/conf.db", f"--remote=punix:{rundir}/db.sock"),
            *(f"--pidfile={rundir}/ovsdb-server.pid", f"--unixctl={rundir}/ovsdb-server.ctl"),
            *(f"--log-file={rundir}/ovsdb-server.log", *common),
        )
        cleanup.callback(_end, rundir / "ovsdb-server.pid")
        ovs.vsctl("--no-wait", "init")
        ovs.run(
            *("ovs-vswitchd", f"unix:{rundir}/db.sock", "--enable-dummy=system"),
            *("--disable-system", f"--pidfile={rundir}/ovs-vswitchd.pid"),
            *(f"--log-file={rundir}/ovs-vswitchd.log", *common),
        )
        cleanup.callback(_end, rundir / "ovs-vswitchd.pid")
        yield ovs


def _end(pidfile: Path) -> None:
    """End the process that wrote `pidfile` and wait until it is gone."""
    process = os.pidfd_open(int(pidfile.read_text()))
    try:
        for ending in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(process, ending)
            if select.select([process], [], [], 5)[0]:
                return
    finally:
        os.close(process)
