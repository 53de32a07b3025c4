# SPDX-License-Identifier: Apache-2.0
import pytest

from vagrant.vm.errors import VmError
from vagrant.vm.mirror import Mirror, chosen


def test_the_mirror_is_picked_from_all_repositories():
    listed = ["https://tools.example/apt", "http://near.example/debian/",
              "http://near.example/debian/", "http://far.example/debian-security/"]  # fmt: skip
    assert chosen(listed) == Mirror("http://near.example/debian",
                                    "http://far.example/debian-security")  # fmt: skip


def test_without_a_security_archive_it_is_taken_to_be_beside_the_other():
    assert chosen(["http://a.example/debian"]).security == "http://a.example/debian-security"


def test_no_mirror_is_an_error_with_a_remedy():
    with pytest.raises(VmError) as caught:
        chosen(["http://archive.example/ubuntu"])
    assert "Vagrantfile" in caught.value.remedy
