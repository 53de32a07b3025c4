# SPDX-License-Identifier: Apache-2.0
"""What the prober must know of its host's configuration."""

from typing import Literal, Protocol


class Settings(Protocol):
    """How often, how large, how varied: `netagent.config.ProbeConfig` in production."""

    @property
    def rate_per_endpoint(self) -> float:
        """Probes per second that one endpoint sends at most."""

    @property
    def rate_per_host(self) -> float:
        """Probes per second that all endpoints send at most."""

    @property
    def bytes_per_second_per_endpoint(self) -> int:
        """Bytes of overlay packets that one endpoint sends at most."""

    @property
    def bytes_per_second_per_host(self) -> int:
        """Bytes of overlay packets that all endpoints send at most."""

    @property
    def flows_per_pair(self) -> int:
        """UDP source ports of one ordered pair."""

    @property
    def rotate_s(self) -> float:
        """Seconds after which one source port of each ordered pair is exchanged; 0: never."""

    @property
    def window_s(self) -> int:
        """Seconds of a window."""

    @property
    def sizes(self) -> tuple[int | Literal["mtu"], ...]:
        """Bytes of the overlay packet, a size class each."""

    @property
    def timeout_ms(self) -> int:
        """Milliseconds after which a probe without a reply is lost."""

    @property
    def pings_per_visit(self) -> int:
        """Probes that one visit to a target takes."""
