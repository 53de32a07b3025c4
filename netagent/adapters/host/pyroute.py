# SPDX-License-Identifier: Apache-2.0
"""The agent's door to pyroute2, of which it loads what it uses.

Its package imports all of its 163 modules, among them a database and a file server: megabytes in
each agent. Here it, and two packages inside, are empty to begin with: they import the modules that
are asked for, and become whole for whoever asks for anything else of them. `IPRSocket` has a mock
of `unittest` for a queue that it lacks, another megabyte: it gets something that does nothing.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace
from typing import Any


def _empty(of: str) -> ModuleType:
    spec = find_spec(of)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {of!r}", name=of)
    package, loader = module_from_spec(spec), spec.loader

    def of_whole(name: str) -> Any:
        # Before `from pyroute2 import X` imports a module X, it looks for an X that is there.
        if name.startswith("__") or find_spec(f"{of}.{name}") is not None:
            raise AttributeError(name)
        del package.__getattr__
        loader.exec_module(package)
        return getattr(package, name)

    package.__getattr__ = of_whole  # type: ignore[method-assign] # PEP 562
    return package


class _Nothing:
    """Takes any call."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


for _name in ("pyroute2", "pyroute2.iproute", "pyroute2.ethtool"):
    if _name not in sys.modules:
        sys.modules[_name] = _empty(_name)
_unittest = ModuleType("unittest")
_unittest.mock = SimpleNamespace(Mock=_Nothing)  # type: ignore[attr-defined]
sys.modules.setdefault("unittest", _unittest)

from pyroute2 import netns  # noqa: E402
from pyroute2.ethtool.ioctl import (  # noqa: E402
    IFNAMSIZ,
    IoctlEthtool,
    NoSuchDevice,
    NotSupportedError,
)
from pyroute2.netlink import (  # noqa: E402
    NETLINK_LISTEN_ALL_NSID,
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
    nla,
    nlmsg,
    rtnl,
)
from pyroute2.netlink.exceptions import NetlinkDecodeError, NetlinkError  # noqa: E402
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg  # noqa: E402
from pyroute2.netlink.rtnl.ifinfmsg import IFF_LOWER_UP, IFF_UP, ifinfmsg  # noqa: E402
from pyroute2.netlink.rtnl.iprsocket import IPRSocket  # noqa: E402
from pyroute2.netlink.rtnl.marshal import MarshalRtnl  # noqa: E402
from pyroute2.netlink.rtnl.ndmsg import ndmsg  # noqa: E402
from pyroute2.netlink.rtnl.nsidmsg import nsidmsg  # noqa: E402
from pyroute2.netlink.rtnl.rtmsg import rtmsg  # noqa: E402

if sys.modules["unittest"] is _unittest:
    del sys.modules["unittest"]

__all__ = [
    "IFF_LOWER_UP",
    "IFF_UP",
    "IFNAMSIZ",
    "NETLINK_LISTEN_ALL_NSID",
    "NLMSG_DONE",
    "NLMSG_ERROR",
    "NLM_F_ACK",
    "NLM_F_DUMP",
    "NLM_F_REQUEST",
    "SOL_NETLINK",
    "IPRSocket",
    "IoctlEthtool",
    "MarshalRtnl",
    "NetlinkDecodeError",
    "NetlinkError",
    "NoSuchDevice",
    "NotSupportedError",
    "ifaddrmsg",
    "ifinfmsg",
    "ndmsg",
    "netns",
    "nla",
    "nlmsg",
    "nsidmsg",
    "rtmsg",
    "rtnl",
]
