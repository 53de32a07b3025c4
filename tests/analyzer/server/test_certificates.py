# SPDX-License-Identifier: Apache-2.0
"""Without an authority; with one, and by name, `test_enrolling.py` asks a real process."""

import pytest

from analyzer.authority import Authority
from analyzer.roster.admission import BURST_BYTES
from analyzer.server.certificates import SIGNING_BYTES
from tests.analyzer.server.test_routes import on, problem


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/invitations", {"host": "h0"}),
        ("POST", "/v1/hosts/h0/certificate", {"request": "r"}),
        ("POST", "/v1/revocations", {"name": "h0"}),
        ("GET", "/v1/crl", None),
    ],
)
def test_an_analyzer_without_an_authority_says_what_it_lacks(tmp_path, method, path, body):
    async def work(lab):
        return await lab.http.request(method, path, json=body)

    assert "signs nothing" in problem(on(tmp_path, work), 404)


def test_what_is_refused_costs_its_host_as_much_as_what_is_signed(tmp_path):
    async def work(lab):
        lab.analyzer.authority = Authority.create(tmp_path / "ca", "an authority")
        lab.analyzer.monotonic = lambda: 0
        lab.analyzer.admission.take("h0", BURST_BYTES - round(1.5 * SIGNING_BYTES), 0)
        lab.peer = "h0"
        asked = [await lab.http.post("/v1/hosts/h0/certificate", json={"request": "x"})
                 for _ in range(2)]  # fmt: skip
        assert [each.status_code for each in asked] == [403, 503]

    on(tmp_path, work)
