# SPDX-License-Identifier: Apache-2.0
from ovs_checks.openflow.parse import parse_flow
from ovs_checks.translate.ends import Quote

TEXT = "cookie=0x7, table=40, n_packets=5, n_bytes=60, priority=9,ip actions=drop"


def test_a_quote_says_where_the_flow_is_and_what_it_counted():
    quote = Quote.of("br-int", parse_flow(TEXT))
    assert quote.place == "br-int/table=40"
    assert (quote.priority, quote.cookie, quote.n_packets, quote.n_bytes) == (9, 7, 5, 60)
    assert quote.text == TEXT


def test_counters_that_were_not_dumped_are_unknown_and_not_zero():
    quote = Quote.of("br-int", parse_flow("priority=9,ip actions=drop"))
    assert (quote.n_packets, quote.n_bytes, quote.table) == (None, None, 0)


def test_a_flow_of_another_bridge_is_another_quote():
    flow = parse_flow(TEXT)
    assert Quote.of("br0", flow) == Quote.of("br0", flow)
    assert Quote.of("br0", flow) != Quote.of("br1", flow)
