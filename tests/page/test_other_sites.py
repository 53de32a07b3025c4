# SPDX-License-Identifier: Apache-2.0
"""What another site can have a browser do, that an operator has open beside the page.

The browser shows the operator's certificate to whatever has it ask, and holds a session.
"""

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.analyzer.certificates import Authority
from tests.analyzer.server.process import Process
from tests.page.browser import ARGUMENTS, Network
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

NOW = "/v1/views/now"
HEARS = """url => new Promise(said => {
  const events = new EventSource(url, {withCredentials: true});
  events.onopen = () => said('open');
  events.addEventListener('tick', () => said('tick'));
  events.onerror = () => said('error');
})"""
READS = """async ([url, options]) => {
  try {
    const answer = await fetch(url, {credentials: 'include', ...options});
    return answer.type + ' ' + answer.status + ' ' + await answer.text();
  } catch (error) { return 'error'; }
}"""
FRAMES = """url => new Promise(said => {
  const frame = document.createElement('iframe');
  frame.onload = said;
  frame.src = url;
  document.body.append(frame);
})"""
LOADS = """([kind, url]) => new Promise(said => {
  const made = document.createElement(kind);
  made.onload = () => said('loaded');
  made.onerror = () => said('error');
  if (kind === 'link') { made.rel = 'stylesheet'; made.href = url; } else made.src = url;
  document.head.append(made);
})"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Silent(http.server.BaseHTTPRequestHandler):
    """The other site: an empty page at any path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><p>here")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as inherited
        """Say nothing."""


class Attacked:
    """An analyzer, an operator in a session of the page, and a tab of another site."""

    def __init__(self, origin: str, api: Callable[..., str], context: Any, elsewhere: str) -> None:
        self.origin, self.link, self.context = origin, api, context
        context.new_page().goto(api())
        self.tab = context.new_page()
        self.tab.goto(elsewhere)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def attacked(
    playwright: Any, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attacked]:
    port, folder = free_port(), tmp_path_factory.mktemp("analyzer")
    origin = f"https://127.0.0.1:{port}"
    more = f'[page]\nlisten = "127.0.0.1:{port}"\n[tenants]\ntenant-a = ["t0"]\n'
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    cert, key = map(str, authority.sign("admin"))
    known = {"origin": origin, "certPath": cert, "keyPath": key}
    command = Network(None).command(folder)
    try:
        with (
            Process(folder, authority, more=more) as analyzer,
            playwright.chromium.launch(executable_path=command, args=ARGUMENTS) as browser,
            browser.new_context(ignore_https_errors=True, client_certificates=[known]) as context,
        ):

            def link(**body: str) -> str:
                with analyzer.client(authority.client("admin")) as admin:
                    url: str = admin.post("/v1/sessions", json=body).json()["url"]
                return url

            site = f"http://localhost:{server.server_address[1]}/"
            yield Attacked(origin, link, context, site)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_another_site_reads_nothing_and_asks_for_nothing(attacked: Attacked) -> None:
    tab, origin = attacked.tab, attacked.origin
    ends = '{"source": "a/rail0", "target": "b/rail0"}'
    asked = (
        {}, {"mode": "no-cors"},
        {"method": "POST", "mode": "no-cors", "body": ends},
        {"method": "POST", "body": ends, "headers": {"content-type": "application/json"}},
    )  # fmt: skip
    for options in asked:
        for path in (NOW, "/v1/diagnose", "/v1/views/events", "/session/x", "/"):
            said = tab.evaluate(READS, [origin + path, options])
            assert said in {"error", "opaque 0 "}, (path, options, said)
    assert tab.evaluate(HEARS, f"{origin}/v1/views/events") == "error"
    tab.evaluate(FRAMES, f"{origin}/")
    # The driver hears of it after the tab itself.
    wait_until(
        lambda: [each.url for each in tab.frames[1:]] == ["chrome-error://chromewebdata/"],
        "the frame shows an error",
        rest=lambda s: tab.wait_for_timeout(1000 * s),
    )
    for kind in ("script", "img", "link"):
        assert tab.evaluate(LOADS, [kind, f"{origin}{NOW}"]) == "error", kind
    assert tab.evaluate(LOADS, ["script", f"{origin}/static/main.js"]) == "error"


def test_another_site_leads_nobody_into_another_session(attacked: Attacked) -> None:
    """A tenant's link, put before an operator, would show that all of little is well."""
    before = cookie(attacked)
    url = attacked.link(**{"for": "tenant-a"})
    tab = attacked.tab
    assert tab.evaluate(LOADS, ["img", url]) == "error"
    assert cookie(attacked) == before
    tab.evaluate("url => { location.href = url; }", url)
    tab.wait_for_url(url)
    assert "Another site asks" in tab.text_content("body")
    assert cookie(attacked) == before
    # Whoever pastes it means it.
    attacked.context.new_page().goto(url)
    assert cookie(attacked) != before


def test_a_neighbour_cannot_put_a_cookie_in_place_of_ours(attacked: Attacked) -> None:
    """A server at another port of the same machine, or of a name below it."""
    [(name, value)] = cookie(attacked)
    tab = attacked.tab
    tab.goto(tab.url.replace("localhost", "127.0.0.1"))
    for text in (
        f"{name}=tossed; path=/",
        f"{name}=tossed; path=/v1; Secure",
        f"{name}=; Max-Age=0",
    ):
        tab.evaluate("text => { document.cookie = text; }", text)
    assert cookie(attacked) == [(name, value)]
    assert name not in tab.evaluate("document.cookie")


def cookie(attacked: Attacked) -> list[tuple[str, str]]:
    return [(each["name"], each["value"]) for each in attacked.context.cookies(attacked.origin)]
