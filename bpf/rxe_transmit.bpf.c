/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Hook: kprobe rxe_xmit_packet(qp, pkt, skb), rdma_rxe.ko.
 * Answers: which packets Soft-RoCE hands to the IP stack.
 * Overhead: not measured; as that of `output`, which does the same.
 * Caveats: Soft-RoCE lives in the initial network namespace, so this hook does not look at it; where
 * several hosts share a kernel it sees the packets of all.
 */
#include "journey.h"

int on_rxe_transmit(struct pt_regs *ctx, u64 qp, u64 packet, u64 skb)
{
	struct filter *filter = wanted();
	struct seen seen = {};

	if (!filter || filter->in_port[0])
		return 0;
	look(&seen, skb);
	if (!read_packet(&seen, network_header_of(skb), filter) || !chosen(&seen, filter))
		return 0;
	pass(&seen, STAGE_RXE_TRANSMIT, 1, filter);
	return 0;
}
