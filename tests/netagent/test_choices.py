# SPDX-License-Identifier: Apache-2.0
from typing import Literal

import pytest
from msgspec import Struct

from netagent import choices
from netagent.model.strenum import StrEnum


class Fruit(StrEnum):
    APPLE = "apple"
    PEAR = "pear"


class Inner(Struct):
    fruit: Fruit | None = None
    size: int = 0


class Outer(Struct):
    way: Literal["", "left", "right"] = ""
    many: tuple[Fruit, ...] = ()
    tables: list[Inner] = []
    named: dict[str, Inner] = {}
    inner: Inner | None = None


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (("way",), '; write one of "left", "right"'),
        (("many",), '; write one of "apple", "pear"'),
        (("many", 0), '; write one of "apple", "pear"'),
        (("tables", 1, "fruit"), '; write one of "apple", "pear"'),
        (("named", "NAME", "fruit"), '; write one of "apple", "pear"'),
        (("inner", "fruit"), '; write one of "apple", "pear"'),
        (("inner", "size"), ""),
        (("inner",), ""),
        (("nowhere", "at", "all"), ""),
        ((), ""),
    ],
)
def test_what_a_setting_may_be_is_told(where, said):
    assert choices.instead_of_value(Outer, where) == said


@pytest.mark.parametrize(
    ("where", "key", "said"),
    [
        ((), "table", "; is 'tables' meant?"),
        (("inner",), "friut", "; is 'fruit' meant?"),
        (("named", "x"), "sizes", "; is 'size' meant?"),
        (("inner",), "colour", ""),
        (
            ("inner",),
            "tables",
            "; it belongs above the first [section], or is a section of its own",
        ),
        (("way",), "left", ""),
    ],
)
def test_a_key_that_is_like_one_of_the_table_is_told(where, key, said):
    assert choices.instead_of_key(Outer, where, key) == said
