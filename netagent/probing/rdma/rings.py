# SPDX-License-Identifier: Apache-2.0
"""Which slots of a queue pair's memory are in use. Does no I/O.

A queue pair completes its requests in the order in which they were posted. So one completion in
`every` sends reports all before it, and receives are posted again a chunk at a time.
"""


class SendRing:
    """Slots for requests that the device may still read; taken and freed in turn."""

    def __init__(self, slots: int, *, every: int) -> None:
        if slots % every:
            raise ValueError(f"{slots} slots are no multiple of {every}")
        self._slots = slots
        self._every = every
        self._next = 0
        self.used = 0

    def signalled(self, slot: int) -> bool:
        """Return whether the request in `slot` asks for a completion."""
        return slot % self._every == self._every - 1

    def take(self) -> int | None:
        """Return a free slot; None where all are in use."""
        if self.used == self._slots:
            return None
        slot = self._next
        self._next = (slot + 1) % self._slots
        self.used += 1
        return slot

    def give_back(self) -> None:
        """Free the slot that was taken last: its request was refused."""
        self._next = (self._next - 1) % self._slots
        self.used -= 1

    def completed(self, slot: int) -> None:
        """Free `slot` and all that were taken before it."""
        oldest = (self._next - self.used) % self._slots
        done = (slot - oldest) % self._slots + 1
        if done <= self.used:  # else it was freed already
            self.used -= done

    def clear(self) -> None:
        """Free all: the queue pair was reset."""
        self._next = self.used = 0


class ReceiveRing:
    """Slots that wait for packets, in chunks that are posted together."""

    def __init__(self, slots: int, *, chunk: int) -> None:
        if slots % chunk:
            raise ValueError(f"{slots} slots are no multiple of {chunk}")
        self.chunk = chunk
        self.chunks = slots // chunk
        self._left = [chunk] * self.chunks

    def consumed(self, slot: int) -> int | None:
        """Account for a packet in `slot`; return the chunk to post again if it was its last."""
        number = slot // self.chunk
        self._left[number] -= 1
        if self._left[number]:
            return None
        self._left[number] = self.chunk
        return number

    def clear(self) -> None:
        """All chunks are posted anew: the queue pair was reset."""
        self._left = [self.chunk] * self.chunks
