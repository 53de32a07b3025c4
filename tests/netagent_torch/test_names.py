# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent_torch.names import group_name, job_of, netns, tidy


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"NETAGENT_JOB": "train-a", "SLURM_JOB_ID": "7"}, "train-a"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7"}, "7"),
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}, "10.0.0.1:29500"),
        ({"NETAGENT_JOB": "a\nb"}, "a-b"),
        ({}, "job"),
    ],
)
def test_a_job_is_called_by_what_its_ranks_share(environment, name):
    assert job_of(environment) == name


def test_groups_of_the_same_members_are_told_apart_by_number():
    assert group_name("3", (0, 4), 8) == "3:0-4"
    assert group_name("0", range(8), 8) == "0:world"


def test_large_groups_have_short_names_that_differ():
    first, second = (group_name("1", range(n, 128, 2), 256) for n in (0, 1))
    assert first != second
    assert len(first) <= 64


def test_a_name_has_no_odd_characters():
    assert tidy('a "b"\t<c>' + "x" * 100) == ("a-b-c-" + "x" * 100)[:64]


def test_the_own_network_namespace_has_an_inode():
    assert netns() > 0
