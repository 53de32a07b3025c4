# SPDX-License-Identifier: Apache-2.0
"""Without an authority; with one, and by name, `test_enrolling.py` asks a real process."""

import pytest

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
