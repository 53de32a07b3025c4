# SPDX-License-Identifier: Apache-2.0
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster.addresses import check_rpc_url
from netagent.model.errors import RemoteProtocolError

NAMES = frozenset({"h2", "h2.example.net", "10.0.0.2", "FD00:0:0:0:0:0:0:2"})


@pytest.mark.parametrize(
    "url",
    ["", "https://h2:8421", "https://h2.example.net", "https://10.0.0.2:8421/", "https://H2:8421",
     "https://[fd00::2]:8421"],
)  # fmt: skip
def test_an_agent_is_asked_where_its_certificate_says_that_it_is(url):
    check_rpc_url(url, NAMES)


@pytest.mark.parametrize(
    "url",
    [
        "http://h2:8421",
        "https://h1:8421",
        "https://169.254.169.254/latest",
        "https://h2:8421/admin/delete?everything=1&x=",
        "https://h2:8421?x=",
        "https://h2:8421#x",
        "https://h2:8421@h1:8421",
        "https://root:secret@h2:8421",
        "https://h2:99999",
        "https://h2:port",
        "https://[h2",
        "https://",
        "//h2:8421",
        "h2:8421",
        "file:///etc/passwd",
        "https://h2:8421\r\nX: y",
        "https://h2\\@h1",
        f"https://{'h' * 600}",
    ],
)
def test_whatever_else_it_says_is_refused(url):
    with pytest.raises(RemoteProtocolError):
        check_rpc_url(url, NAMES)


def test_without_tls_any_host_passes_but_nothing_else_of_a_url():
    check_rpc_url("http://10.9.9.9:8421", None)
    with pytest.raises(RemoteProtocolError, match="more than"):
        check_rpc_url("http://10.9.9.9:8421/v1/trace?x=", None)


@given(st.text(max_size=60).map("https://h2".__add__) | st.text(max_size=80))
def test_what_passes_leads_to_nobody_else(url):
    with contextlib.suppress(RemoteProtocolError):
        check_rpc_url(url, {"h2"})
        rest = url.lower().removeprefix("https://h2").rstrip("/").removeprefix(":")
        assert not rest or rest.isdecimal()
