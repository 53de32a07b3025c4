# SPDX-License-Identifier: Apache-2.0
"""What a host may be asked to do, where its owner permits it; what it says of it."""

from typing import Annotated

from msgspec import Meta, Struct

from netagent.model.strenum import StrEnum

MAX_TEXT = 2000
"""Characters of a text. Chosen: an error of a daemon fits."""
MAX_READ = 16
"""Things that were read. Chosen: to be read by a person."""

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Word = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]*\Z")]
"""A name that is no path and no option."""


class HostVerb(StrEnum):
    """What a host can do; there is no other verb, and none that deletes."""

    RECOMPUTE = "recompute"
    """ovn-controller computes all of its flows anew."""
    REINSTALL = "reinstall"
    """A bridge's controller installs all of its flows anew."""


class ActionRequest(Struct, frozen=True, kw_only=True):
    """Ask a host to do something."""

    id: Word
    """What has the same id is done once."""
    verb: HostVerb
    bridge: Word
    """The integration bridge; a host that has another one does nothing."""
    dry_run: bool = True
    """Say what would be done, and do nothing."""
    by: Text = ""
    """Who wants it, for the host's log; who asks is in the certificate."""


class ActionReply(Struct, frozen=True, kw_only=True):
    """What was done, or would be."""

    host: Text
    verb: HostVerb
    done: bool
    """Whether it was done, now or by an earlier request with the same id."""
    refused: Text = ""
    """Why it may not be done; "" where it may be. Nothing was changed."""
    problem: Text = ""
    """Why it failed; what it had changed is put back."""
    command: Text = ""
    """The same as an operator would type it."""
    undo: Text = ""
    """What takes it back, which is done at once; "" where nothing is left of it."""
    read: Annotated[tuple[Text, ...], Meta(max_length=MAX_READ)] = ()
    """What was read to decide."""
