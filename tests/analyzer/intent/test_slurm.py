# SPDX-License-Identifier: Apache-2.0
"""Slurm's lists of hosts, and jobs as tasks."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent import slurm
from analyzer.intent.slurm import Job, check_template, containers_of, ended, hosts_of, job_of
from netagent.model.errors import RemoteProtocolError

WORD = st.text("abz-._", max_size=4)
NUMBERS = st.integers(0, 120).flatmap(
    lambda first: st.tuples(st.just(first), st.integers(first, first + 12), st.integers(0, 4))
)
"""First and last number of a range, and its least digits."""
GROUP = st.tuples(WORD, st.lists(NUMBERS, min_size=1, max_size=3))
NAME = st.tuples(st.lists(GROUP, max_size=2), st.text("abz", min_size=1, max_size=3))


def written(groups, end):
    """Return a name as Slurm writes it."""
    text = ""
    for word, ranges in groups:
        parts = [
            f"{first:0{digits}}" if first == last else f"{first:0{digits}}-{last:0{digits}}"
            for first, last, digits in ranges
        ]
        text += f"{word}[{','.join(parts)}]"
    return text + end


def naive(groups, end):
    """Return the hosts of a name by hand: every number written out, digit by digit."""
    if not groups:
        return [end]
    (word, ranges), *rest = groups
    hosts = []
    for first, last, digits in ranges:
        width = max(digits, len(str(first)))
        number = first
        while number <= last:
            text = str(number)
            while len(text) < width:
                text = "0" + text
            hosts += [word + text + tail for tail in naive(rest, end)]
            number += 1
    return hosts


@given(st.lists(NAME, min_size=1, max_size=3))
def test_a_list_is_every_host_written_out(names):
    text = ",".join(written(*name) for name in names)
    assert list(hosts_of(text)) == [host for name in names for host in naive(*name)]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("login1", ("login1",)),
        ("nid[001-003,7]", ("nid001", "nid002", "nid003", "nid7")),
        ("a,b[9-11]", ("a", "b9", "b10", "b11")),
        ("r[1-2]n[08-09].lan,x", ("r1n08.lan", "r1n09.lan", "r2n08.lan", "r2n09.lan", "x")),
        ("[1-2]", ("1", "2")),
    ],
)
def test_lists_as_slurm_writes_them(text, hosts):
    assert hosts_of(text) == hosts


@pytest.mark.parametrize(
    "text",
    [",", "a,", ",a", "a,,b", "a[", "a]", "a[]", "a[1", "a[x]", "a[1-]", "a[3-1]", "a[1,,2]", "a b",
     "a[1-2", "a\n", "a[1-2-3]", "a[[1]]"],
)  # fmt: skip
def test_what_is_no_list_is_refused(text):
    with pytest.raises(RemoteProtocolError, match="no list of hosts"):
        hosts_of(text)


@pytest.mark.parametrize(
    "text", ["n[0-999999999999999999]", "a[1-300]b[1-300]", "a[1-65536],b", "a" * (1 << 20) + "b"]
)
def test_no_list_has_more_hosts_than_a_cluster(text):
    with pytest.raises(RemoteProtocolError):
        hosts_of(text)


@given(st.text("an[]-,0123 ", max_size=20))
def test_whatever_it_is_told_it_answers_or_refuses(text):
    with suppress(RemoteProtocolError):
        assert all(hosts_of(text)) or not text


ENVIRON = {"SLURM_JOB_ID": "17", "SLURM_JOB_USER": "ada", "SLURM_JOB_NODELIST": "nid[1-2]"}


def test_a_hooks_environment_says_the_job():
    job = job_of(ENVIRON, with_hosts=True)
    assert (job, job.task) == (Job("17", "ada", ("nid1", "nid2")), "slurm.ada.17")
    assert job_of({**ENVIRON, "SLURM_JOB_NODELIST": "a["}, with_hosts=False).task == job.task


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_JOB_ID", ""), ("SLURM_JOB_ID", "1.2"), ("SLURM_JOB_USER", ""),
        ("SLURM_JOB_USER", "a/b"), ("SLURM_JOB_NODELIST", ""), ("SLURM_JOB_NODELIST", "a["),
    ],
)  # fmt: skip
def test_an_environment_of_no_job_is_refused(name, value):
    with pytest.raises(RemoteProtocolError):
        job_of({**ENVIRON, name: value}, with_hosts=True)


def test_containers_are_those_on_the_jobs_hosts_or_named_after_them():
    job = job_of(ENVIRON, with_hosts=True)
    known = [("c1", "nid2"), ("c0", "nid2"), ("c9", "nid1"), ("c9", "nid1"), ("x", "nid3")]
    assert containers_of(job, "", known) == (("c9", "nid1"), ("c0", "nid2"), ("c1", "nid2"))
    assert containers_of(job, "{user}-{job}-{host}", known) == (
        ("ada-17-nid1", "nid1"), ("ada-17-nid2", "nid2"),
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "job", "{job}", "{host}-{rank}", "{}{host}"])
def test_a_template_has_the_host_and_nothing_unknown(text):
    with pytest.raises(ValueError, match="is no text with"):
        check_template(text)


def test_tasks_of_jobs_that_do_not_run_have_ended():
    tasks = ["slurm.ada.17", "slurm.bob.2", "slurm.a.b.3", "train-a", "other.ada.9"]
    assert ended(tasks, ["17", "9"]) == ["slurm.a.b.3", "slurm.bob.2"]
    assert slurm.PREFIX == "slurm."
