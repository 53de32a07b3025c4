# SPDX-License-Identifier: Apache-2.0

import asyncio

import netagent
from analyzer.server.metrics.own import own
from tests.analyzer.server.metrics.large import running


def test_the_analyzer_says_how_it_is_and_what_it_asked(tmp_path):
    async def inside():
        async with running(tmp_path) as analyzer:
            analyzer.asker.asked["check", "timeout"] += 2
            analyzer.counters.summaries = 7
            analyzer.asker.stood_still = 1
            analyzer.jobs.failed, analyzer.jobs.unanswered, analyzer.jobs.asked_bytes = 1, 2, 3
            return {name: dict(rows) for name, rows in own(analyzer)}

    found = asyncio.run(inside())
    assert found["build_info"] == {(netagent.__version__,): 1}
    assert found["questions_total"] == {("check", "timeout"): 2}
    assert found["summaries_total"] == {(): 7}
    assert found["stood_still_total"] == {(): 1}
    assert found["jobs_not_judged_total"] == {(): 1}
    assert found["job_questions_unanswered_total"] == {(): 2}
    assert found["job_records_bytes_total"] == {(): 3}
    assert found["disk_refuses"] == {(): 0}
    assert "certificate_end_timestamp_seconds" not in found  # there is no TLS
