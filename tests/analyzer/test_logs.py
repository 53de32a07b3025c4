# SPDX-License-Identifier: Apache-2.0
import io
import json
import logging
import sys

import structlog

from analyzer import logs


def test_logs_are_json_lines_where_nobody_watches(capfd):
    logs.configure_logging(verbose=False)
    structlog.get_logger().info("listening", url="u")
    structlog.get_logger().debug("unseen")
    logging.getLogger("uvicorn.error").warning("from %s", "uvicorn")
    first, second = map(json.loads, capfd.readouterr().err.splitlines())
    assert (first["event"], first["url"], first["level"]) == ("listening", "u", "info")
    assert (second["event"], second["level"]) == ("from uvicorn", "warning")


def test_a_log_that_nobody_reads_any_more_stops_nobody(monkeypatch):
    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    logs.configure_logging(verbose=False)
    structlog.get_logger().warning("unheard")
    logging.getLogger("uvicorn.error").warning("unheard")
