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


def test_runbooks_are_served_as_text_and_only_those_there_are():
    found = runbooks("docs/runbooks")
    assert set(found) == {f"runbooks/{name}.md" for name in PAGES}
    assert found["runbooks/link-loses.md"].media_type.startswith("text/plain")
    assert runbooks("nowhere") == {}
