# SPDX-License-Identifier: Apache-2.0
"""How this host's ovn-controller is: asked over its control socket, as ovs-vswitchd is."""

from contextlib import suppress
from pathlib import Path

import structlog

from netagent.adapters.host.vswitchd import (
    ANSWER_S,
    Absent,
    NoAnswer,
    VswitchdError,
    appctl,
    process_of,
)
from netagent.model.unixctl import OVN_CONTROLLER
from netagent.wire.controller import Working

log = structlog.get_logger()

_QUESTION = "connection-status"
_SAID = {"connected": Working.CONNECTED, "not connected": Working.CUT_OFF}
"""Answers to it (ovn-controller(8))."""
_SHOWN = 80
"""Characters of an odd answer that are told. Chosen: to be read."""


async def working_of(rundir: Path, *, answer_s: float = ANSWER_S) -> tuple[Working, str]:
    """Return how ovn-controller is, and why, where it is not connected.

    That nobody may look, or that it listens elsewhere, is no sign that it stopped.
    """
    try:
        _look_into(rundir)
        said = await appctl(rundir, _QUESTION, timeout_s=answer_s, daemon=OVN_CONTROLLER)
    except OSError as error:
        return Working.UNKNOWN, str(error)
    except NoAnswer as error:
        return Working.SILENT, str(error)
    except Absent as error:
        pid = process_of(rundir, OVN_CONTROLLER)
        if _runs(pid):
            return Working.UNKNOWN, f"process {pid} does not listen in {rundir}"
        return Working.STOPPED, str(error)
    except VswitchdError as error:
        return Working.UNKNOWN, str(error)
    found = _SAID.get(said.strip(), Working.UNKNOWN)
    return found, "" if found is Working.CONNECTED else f"it says {said.strip()[:_SHOWN]!r}"


def _look_into(rundir: Path) -> None:
    next(rundir.iterdir(), None)


def _runs(pid: int | None) -> bool:
    """Whether that is ovn-controller, and no process that has ended (proc(5), /proc/PID/stat)."""
    with suppress(OSError):
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        name, _, state = said.partition("(")[2].rpartition(") ")
        return name == OVN_CONTROLLER and state[:1] not in {"Z", "X"}
    return False


class OvnWatch:
    """Remembers how ovn-controller is from look to look."""

    def __init__(self, rundir: Path, *, answer_s: float = ANSWER_S) -> None:
        self._rundir, self._answer_s = rundir, answer_s
        self.working = Working.UNKNOWN
        self._unanswered = 0  # looks in a row
        self._unknown = ""  # why it is not known, as logged

    async def look(self) -> bool:
        """Look again; return whether `working` changed.

        One look without an answer is an instance that computes, two in a row are not.
        """
        before = self.working
        found, why = await working_of(self._rundir, answer_s=self._answer_s)
        self._unanswered = self._unanswered + 1 if found is Working.SILENT else 0
        if self._unanswered == 1:
            return False
        self.working = found
        unknown = why if found is Working.UNKNOWN else ""
        if unknown and unknown != self._unknown:
            log.warning("ovn_controller_unknown", why=why)
        self._unknown = unknown
        return self.working != before
