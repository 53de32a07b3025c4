# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from analyzer.intake.unprobed import check_unprobed
from netagent.model.errors import RemoteProtocolError
from netagent.wire.unprobed import MOST_COUNT, MOST_PORTS, MOST_TEXT, Unprobed, UnprobedPort, Why

PORT = UnprobedPort(
    port="v", why=Why.NO_RAIL, text="x" * MOST_TEXT, bridge="br-int", name="n", task="t"
)
LONG, ESCAPE = "x" * (MOST_TEXT + 1), "\x1b[2J"


def test_what_agents_say_is_taken():
    check_unprobed(Unprobed())
    check_unprobed(Unprobed(ports=(PORT,) * MOST_PORTS, count=MOST_COUNT))


@pytest.mark.parametrize(
    "said",
    [
        Unprobed(ports=(PORT,)),
        Unprobed(count=-1),
        Unprobed(count=MOST_COUNT + 1),
        Unprobed(ports=(PORT,) * (MOST_PORTS + 1), count=MOST_PORTS + 1),
        Unprobed(ports=(msgspec.structs.replace(PORT, port=""),), count=1),
        *(
            Unprobed(ports=(msgspec.structs.replace(PORT, **{name: odd}),), count=1)
            for name in ("port", "text", "bridge", "name", "container", "task")
            for odd in (LONG, ESCAPE)
        ),
    ],
)
def test_what_no_agent_says_is_refused(said):
    with pytest.raises(RemoteProtocolError, match=r"no endpoint|a port with"):
        check_unprobed(said)
