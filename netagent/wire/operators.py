# SPDX-License-Identifier: Apache-2.0
"""What a host's training processes communicated: sums of a window, and the records on demand.

A row of a window is one operation of one process in one group. Times of a host are its own; only
durations and orders within a group may be compared with another host's.
"""

from typing import Annotated

from msgspec import Meta, Struct

from netagent.wire.columns import N32, U8, U16, U32, U64

MOST_ROWS = 4096
"""Most rows of a window. Chosen: 64 processes with 64 pairs of operation and group each."""
MOST_PROCESSES = 64
"""Most processes of a host. Chosen: several times its GPUs."""
MOST_GROUPS = 512
MOST_OPS = 256
MOST_TEXT = 64
"""Most characters of a name; as the recorder's own."""
MOST_MEMBERS = 8192
"""Most members of a group that are named; of more, only how many there are."""
MOST_NAMED = 1 << 18
"""Most members of all groups of a message together; groups beyond that have none named. Chosen:
thirty groups of 8192 members; the analyzer takes some hundredths of a second over them."""
MOST_ENDS = 64
"""Most connections of a group that a process states: enough to join it to the others."""
MOST_RANKS = 1 << 20
MOST_RECORDS = 20_000
"""Most records of a reply. Chosen: a megabyte, some minutes of a process."""
MOST_ASKED = 64
"""Most ranks that are asked about at once."""
NO_GROUP = 0xFFFF
NONE = 0xFFFF_FFFF
"""No step, no peer."""

Text = Annotated[str, Meta(max_length=MOST_TEXT)]


class OperatorProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process of a job, as it says itself: whoever may write a ring may claim any of it."""

    job: Text
    rank: int = -1
    """-1: not known."""
    world: int = 0
    """Ranks of the job; 0: not known."""
    source: Text = "hooks"
    """``hooks`` or ``uprobes``."""
    pid: int = 0
    """As the process sees it."""
    since_ns: int = 0
    """When its ring was made, by its own wall clock: a container that began anew in the same
    namespace has the same pid. 0: an agent of before does not say it."""
    uid: int = 0
    """Owner of the ring, which nobody but root can claim."""
    netns: int = 0
    """Inode of its network namespace; 0: not known."""
    container: Annotated[str, Meta(max_length=256)] = ""
    """Container whose network namespace that is, as the agent knows it; "": of none."""
    gone: bool = False
    """Whether it has ended, in whatever way."""
    step: int = -1
    """The newest training iteration that it named."""
    missed: int = 0
    """Records of the window that were overwritten before they were read."""
    left_out: int = 0
    """Operations that were never recorded (sampled, or shed), since the process began."""
    whole: bool = False
    """Of uprobes: whether they see all in which the process may wait for others, as far as its
    libraries tell."""


class OperatorGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One group of one job."""

    job: Text
    name: Text
    kind: Text = ""
    """``dp``, ``pp``, ``tp``, ``ep``; "": nobody said."""
    size: int = 0
    members: U32 = b""
    """Ranks in the order of the group; empty in most windows, once in a minute all."""
    place: int = -1
    """Of uprobes, which know no members, and in replies alone: the process' place in the group."""
    end_places: U32 = b""
    """Likewise: places of members to which it is connected,"""
    own_ends: U64 = b""
    """of each connection a number of its own address,"""
    their_ends: U64 = b""
    """and of that member's. One of the two listened at its own, and the other one says the same of
    its peer: so groups of different processes are known to be one."""


class OperatorColumns(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row for each process, group and operation that began or ended in the window, or is open."""

    processes: Annotated[tuple[OperatorProcess, ...], Meta(max_length=MOST_PROCESSES)] = ()
    groups: Annotated[tuple[OperatorGroup, ...], Meta(max_length=MOST_GROUPS)] = ()
    ops: Annotated[tuple[Text, ...], Meta(max_length=MOST_OPS)] = ()
    process: U8 = b""
    """Row of `processes`."""
    group: U16 = b""
    """Row of `groups`; NO_GROUP for what is in none."""
    op: U8 = b""
    """Row of `ops`."""
    kind: U8 = b""
    """0 other, 1 compute, 2 collective, 3 send, 4 receive."""
    count: N32 = b""
    """Operations that ended in the window."""
    bytes: U64 = b""
    """Of these, what the rank gave."""
    sum_us: U64 = b""
    """Of these, how long they held the process up."""
    max_us: N32 = b""
    median_us: N32 = b""
    begun: N32 = b""
    """Number of the newest collective that began, in the group; 0: none, or not a collective."""
    ended: N32 = b""
    """Number of the newest that ended."""
    open_ms: N32 = b""
    """For how long the oldest that has not ended had been open when the window closed; 0: none."""
    omitted: int = 0
    """Rows left out because they were too many."""
    unread: int = 0
    """Rings that could not be read, or were too many."""


class OperatorsRequest(Struct, frozen=True, kw_only=True):
    """Ask for records of some ranks of a job, of a time by the host's wall clock."""

    job: Text
    ranks: Annotated[tuple[int, ...], Meta(max_length=MOST_ASKED)] = ()
    """Empty: all that the host has."""
    since_ns: int = 0
    until_ns: int = 1 << 62
    most: Annotated[int, Meta(ge=1, le=MOST_RECORDS)] = MOST_RECORDS


class OperatorsReply(Struct, frozen=True, kw_only=True):
    """A row for each record, in the order in which each process made them."""

    processes: tuple[OperatorProcess, ...] = ()
    groups: tuple[OperatorGroup, ...] = ()
    ops: tuple[str, ...] = ()
    process: U8 = b""
    group: U16 = b""
    op: U8 = b""
    kind: U8 = b""
    step: U32 = b""
    """NONE where the process named none."""
    peer: U32 = b""
    tag: U16 = b""
    """Of sending and receiving; of what is computed its microbatch."""
    bytes: U64 = b""
    sequence: U32 = b""
    begun_ns: U64 = b""
    """Wall clock of the host, as `ended_ns`."""
    ended_ns: U64 = b""
    """0: it has not ended. Of what had ended before the process waited for it, `begun_ns` and how
    long it waited."""
    omitted: int = 0
    """Records left out because they were too many: the oldest ones of each process."""
