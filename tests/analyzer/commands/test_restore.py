# SPDX-License-Identifier: Apache-2.0
import json

from analyzer import cli
from tests.analyzer.store import backups


def test_it_says_what_it_put_where_and_where_the_other_is(tmp_path, capsys):
    folder = backups.made(tmp_path / "netagent.duckdb")
    config = tmp_path / "analyzer.toml"
    config.write_text('database = "other.duckdb"\n')
    words = ["restore", str(folder), "--config", str(config)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "3 summaries" in said
    assert "what was there" not in said
    assert cli.main(words) == 2
    assert "--replace" in capsys.readouterr().err
    assert cli.main([*words, "--replace"]) == 0
    assert "what was there is now" in capsys.readouterr().out
    assert backups.held(tmp_path / "other.duckdb") == [b"one", b"two", b"three"]


def test_a_damaged_backup_is_status_1(tmp_path, capsys):
    folder = backups.made(tmp_path / "netagent.duckdb")
    (folder / "netagent.duckdb").write_bytes(b"")
    config = tmp_path / "analyzer.toml"
    config.write_text('database = "other.duckdb"\n')
    words = ["restore", str(folder), "--config", str(config), "--json"]
    assert cli.main(words) == 1
    assert "bytes" in capsys.readouterr().err
    assert not (tmp_path / "other.duckdb").exists()
    (folder / "manifest.json").unlink()
    assert cli.main(words) == 1


def test_as_json_it_is_one_object(tmp_path, capsys):
    folder = backups.made(tmp_path / "netagent.duckdb")
    config = tmp_path / "analyzer.toml"
    config.write_text('database = "other.duckdb"\n')
    assert cli.main(["restore", str(folder), "--config", str(config), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["summaries"], told["replaced"]) == (3, None)
    assert told["database"] == str(tmp_path / "other.duckdb")
