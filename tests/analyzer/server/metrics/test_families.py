# SPDX-License-Identifier: Apache-2.0

import asyncio
import re
from collections import Counter

import pytest
from prometheus_client import exposition, parser

from analyzer.server.metrics.families import FAMILIES, Buckets, most_series, registry_of
from analyzer.server.metrics.scrape import gathered
from tests.analyzer.server.metrics import documented
from tests.analyzer.server.metrics.large import fill, running, told

SUFFIX = re.compile("_(bucket|count|sum)$")


def text_of(samples):
    return exposition.generate_latest(registry_of(samples)).decode()


def counted(text):
    """Return the series of each family."""
    series = Counter()
    for line in text.splitlines():
        if not line.startswith("#"):
            name = re.match("[a-z0-9_:]+", line)[0]
            series[SUFFIX.sub("", name) if name.startswith("netagent_rtt") else name] += 1
    return series


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return all samples of 8,000 RNICs, and the text of them; `make bench` has 40,000."""

    async def inside():
        async with running(tmp_path_factory.mktemp("large")) as analyzer:
            await fill(analyzer, rnics=8_000)
            return gathered(analyzer, told(analyzer.clock()), 0)

    samples = asyncio.run(inside())
    return samples, text_of(samples)


def test_thousands_of_rnics_have_no_more_series_than_are_documented(large):
    _, text = large
    series, families = counted(text), {each.name: each for each in FAMILIES}
    assert set(series) <= set(families)
    above = {
        name: n for name, n in series.items() if n > families[name].most and not families[name].per
    }
    assert above == {}
    assert series.total() <= most_series()
    full = {name for name, n in series.items() if n == families[name].most > 1}
    assert full >= {
        "netagent_rtt_seconds", "netagent_probes_lost_total", "netagent_incident_info",
        "netagent_agent_silence_seconds", "netagent_agent_worst_cpu_ratio",
        "netagent_rnic_hw_total", "netagent_questions_total", "netagent_findings",
    }  # fmt: skip


def test_the_document_lists_every_metric_as_it_is():
    text = documented.DOCUMENT.read_text()
    assert documented.table_of(text) == documented.rows()
    assert documented.bound() in text


def test_every_sample_has_the_labels_of_its_family(large):
    samples, _ = large
    for family in FAMILIES:
        for labels, _ in samples.get(family.name, ()):
            assert len(labels) == len(family.labels), family.name


def test_there_is_no_sample_without_a_family_and_only_what_needs_a_setting_is_missing(large):
    samples, _ = large
    names = {family.name for family in FAMILIES}
    assert set(samples) <= names
    missing = {name.split("_")[1] for name in names - set(samples)}
    # Without TLS, an authority, Kubernetes, and a look at the disk.
    assert missing <= {"certificate", "certificates", "invitations", "kubernetes", "disk"}


def test_names_and_units_follow_the_conventions():
    for family in FAMILIES:
        assert re.fullmatch("netagent(_[a-z0-9]+)+", family.name)
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert (family.kind == "info") == family.name.endswith("_info"), family.name
        assert not re.search("(_ms|_us|_ns|_kb|_mb|milliseconds|_percent)(_|$)", family.name)
        assert family.text.endswith(".")
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_a_histogram_is_cumulated_and_a_hostile_label_stays_one():
    odd = 'task" \\ \n} 1'
    rows = [((odd, "0", "0"), Buckets([1] * 15, 2.5))]
    [family] = parser.text_string_to_metric_families(text_of({"netagent_rtt_seconds": rows}))
    assert family.type == "histogram"
    by_name = {}
    for sample in family.samples:
        by_name.setdefault(sample.name, []).append(sample)
        assert sample.labels["task"] == odd
    buckets = [sample.value for sample in by_name["netagent_rtt_seconds_bucket"]]
    assert buckets == list(range(1, 16))
    assert by_name["netagent_rtt_seconds_count"][0].value == 15
    assert by_name["netagent_rtt_seconds_sum"][0].value == 2.5


def test_the_registry_has_nothing_of_the_process_or_of_another_one():
    samples = {"netagent_build_info": [(("1",), 1)]}
    assert counted(text_of(samples)) == {"netagent_build_info": 1}
    assert counted(text_of(samples)) == {"netagent_build_info": 1}
