# SPDX-License-Identifier: Apache-2.0
from netagent.wire.codec import decode, encode
from netagent.wire.zone import (
    EXPLAINING,
    FOLLOWED,
    PLUGGED,
    SCHEMAS,
    ZoneReply,
    ZoneRequest,
    ZoneRows,
)


def test_messages_come_out_as_they_went_in():
    request = ZoneRequest(known={"northbound": "12"}, explaining=True)
    assert decode(encode(request), ZoneRequest) == request
    rows = ZoneRows(digest="12", rows=b"{}", lacks=("Chassis.x",))
    reply = ZoneReply(host="h1", databases={"northbound": rows, "southbound": ZoneRows(away="no")})
    assert decode(encode(reply), ZoneReply) == reply


def test_that_nothing_changed_takes_few_bytes():
    told = {name: ZoneRows(digest="0" * 32) for name in SCHEMAS}
    assert len(encode(ZoneReply(host="gpu-0417", databases=told))) < 160


def test_both_lists_are_of_both_databases_and_conditions_are_on_tables_of_theirs():
    assert set(FOLLOWED) == set(EXPLAINING) == set(SCHEMAS)
    followed = {name: columns for each in FOLLOWED.values() for name, columns in each.items()}
    assert all(clause[0] in followed[name] for name, each in PLUGGED.items() for clause in each)
