# SPDX-License-Identifier: Apache-2.0
"""Everything this product raises on purpose.

NetAgentError
├── ConfigError            the operator can fix it        exit 2; all others 3
├── CapabilityMissing      the host lacks something       the agent degrades
├── ProtocolError
│   ├── LocalProtocolError     we broke the rules         a bug: crash
│   └── RemoteProtocolError    the peer did               drop what it sent
├── TooSoon                a costly thing is asked again  wait, then retry
└── Unreachable            a peer did not answer in time  retry, back off
"""


class NetAgentError(Exception):
    """The root; never raised itself."""


class ConfigError(NetAgentError):
    """A configuration cannot be used; `line` is 1-based, or None where no line is to blame."""

    def __init__(self, path: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{path}:{line}: {message}" if line is not None else f"{path}: {message}")
        self.path, self.message, self.line = path, message, line


class CapabilityMissing(NetAgentError):
    """The host cannot do `capability`; `remedy` is one line for a human."""

    def __init__(self, capability: str, remedy: str) -> None:
        super().__init__(f"{capability} unavailable: {remedy}")
        self.capability, self.remedy = capability, remedy

    def __reduce__(self) -> tuple[type["CapabilityMissing"], tuple[str, str]]:
        """Let it pass from one process to another."""
        return type(self), (self.capability, self.remedy)


class ProtocolError(NetAgentError):
    """Bytes or messages that break the rules; never raised itself."""


class LocalProtocolError(ProtocolError):
    """We broke the rules: a bug."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules; what it sent is dropped and counted."""


class TooSoon(NetAgentError):
    """`host` is asked again too soon for what costs it much; `reason` says what, and when."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"{host}: {reason}")
        self.host, self.reason = host, reason


class Unreachable(NetAgentError):
    """`peer` did not answer; `reason` is `refused`, `timeout`, `no route` or the error's text."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer, self.reason = peer, reason


PROBLEM, MISUSE = 1, 2
"""Exit codes of workers: there is no answer; the question makes no sense."""
BUSY = 3
"""Exit code of a worker that has no answer as long as another one is at work."""


def plain_of(error: NetAgentError) -> dict[str, str]:
    """Return what a program reads of `error`: `error`, and `remedy`, "" where it knows none."""
    return {"error": str(error), "remedy": getattr(error, "remedy", "")}


def exit_code(error: NetAgentError) -> int:
    """Return the exit code of a worker that `error` ends."""
    return MISUSE if isinstance(error, ConfigError) else PROBLEM


def status_of(error: NetAgentError) -> int:
    """Return the exit status of a command that `error` ends; an error may have one of its own.

    2: the question cannot be asked so. 3: there is no answer now. 1 is a negative answer.
    """
    own: int | None = getattr(error, "exit_status", None)
    if own is not None:
        return own
    return 2 if isinstance(error, ConfigError) else 3
