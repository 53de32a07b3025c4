# SPDX-License-Identifier: Apache-2.0
"""What the verbs that question a virtual switch share: where it is, or what is kept of it."""

import argparse
import os
from pathlib import Path

from netagent.model.errors import ConfigError
from ovs_checks.answers import open_answers
from ovs_checks.assemble import assemble
from ovs_checks.switch import Snapshot
from ovs_checks.vswitchd import Vswitchd


def add_place(parser: argparse.ArgumentParser, *, bundles: bool = False) -> None:
    """Declare how to find Open vSwitch; with `bundles`, also how to do without it."""
    parser.add_argument("--db", metavar="unix:FILE", help="OVSDB's socket")
    parser.add_argument("--rundir", help="folder of db.sock and the control socket [OVS_RUNDIR]")
    if bundles:
        parser.add_argument(
            "--bundle",
            metavar="PATH",
            help="ask what netagent bundle or sos report kept, packed or not",
        )


def rundir_of(arguments: argparse.Namespace) -> Path:
    """Return where Open vSwitch's sockets are (ovs-appctl(8))."""
    if arguments.rundir:
        return Path(arguments.rundir)
    if arguments.db:
        kind, _, path = arguments.db.partition(":")
        if kind != "unix" or not path:
            raise ConfigError("--db", f"unix:FILE expected, not {arguments.db}")
        return Path(path).parent
    return Path(os.environ.get("OVS_RUNDIR") or "/var/run/openvswitch")


def snapshot_of(arguments: argparse.Namespace) -> Snapshot:
    """Return what the virtual switch holds, or held when the bundle was made."""
    if arguments.bundle:
        answers = open_answers(Path(arguments.bundle))
        return assemble(answers, answers.host, wall_ns=answers.wall_ns)
    return Vswitchd(rundir_of(arguments)).snapshot(os.uname().nodename)
