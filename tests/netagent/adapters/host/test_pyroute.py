# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys


def said(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


def test_an_agent_loads_a_part_of_it_and_others_have_all_of_it():
    code = """
import sys
import netagent.commands.run
print("pyroute2.netlink" in sys.modules, "unittest" in sys.modules)
print(any(f"pyroute2.{name}" in sys.modules for name in ("ndb.main", "iproute.linux")))
from pyroute2 import NDB, IPRoute
import pyroute2
print(pyroute2.IPRoute is IPRoute, pyroute2.__version__ != "", "pyroute2.ndb.main" in sys.modules)
print(hasattr(pyroute2, "nothing_of_it"))
from unittest import mock
print(mock.Mock().return_value)
"""
    got = said(code)
    assert got[:7] == ["True", "False", "False", "True", "True", "True", "False"]
    assert got[7].startswith("<Mock")


def test_it_is_left_as_it_is_where_somebody_has_it():
    code = """
import pyroute2
whole = pyroute2.IPRoute
from netagent.adapters.host.pyroute import IPRSocket, netns
print(pyroute2.IPRoute is whole, netns is pyroute2.netns)
"""
    assert said(code) == ["True", "True"]


def test_unittest_is_left_as_it_is_where_somebody_has_it():
    code = """
import unittest.mock
from netagent.adapters.host.pyroute import IPRSocket
import sys
print(sys.modules["unittest"] is unittest, unittest.mock.Mock().__class__.__name__)
"""
    assert said(code) == ["True", "Mock"]
