# SPDX-License-Identifier: Apache-2.0
from analyzer.runbooks.pages import PAGES
from analyzer.server.page.files import INDEX, files, runbooks


def test_the_page_is_there():
    found = files()
    assert found[INDEX].media_type == "text/html; charset=utf-8"
    for name, file in found.items():
        assert b"http://" not in file.body.replace(b"http://www.w3.org", b""), name


def test_only_what_a_page_is_made_of_is_served(tmp_path):
    for name in ("a.js", "b.css", "c.svg", "d.py", ".hidden.js", "no-suffix", "E.js", "f.js~"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder.js").mkdir()
    assert set(files(tmp_path)) == {"a.js", "b.css", "c.svg"}


def test_a_file_that_changed_has_another_tag(tmp_path):
    path = tmp_path / "a.js"
    path.write_text("one")
    before = files(tmp_path)["a.js"].tag
    path.write_text("two")
    assert files(tmp_path)["a.js"].tag != before


def test_runbooks_are_served_as_pages_and_only_those_there_are(tmp_path):
    found = runbooks("docs/runbooks")
    assert set(found) == {f"runbooks/{name}.md" for name in PAGES}
    page = found["runbooks/link-loses.md"]
    assert page.media_type == "text/html; charset=utf-8"
    assert b"<h1>A link loses packets</h1>" in page.body
    assert runbooks("nowhere") == {}
    (tmp_path / "link-loses.md").write_bytes(b"# Ours \xff\n")
    assert "<h1>Ours \ufffd</h1>" in runbooks(str(tmp_path))["runbooks/link-loses.md"].body.decode()
