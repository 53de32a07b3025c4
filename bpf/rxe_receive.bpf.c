/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Hook: kprobe rxe_rcv(skb), rdma_rxe.ko.
 * Answers: which packets Soft-RoCE takes from its UDP socket.
 * Overhead: not measured; as that of `output`, which does the same.
 * Caveats: as `rxe_transmit`.
 */
#include "journey.h"

int on_rxe_receive(struct pt_regs *ctx, u64 skb)
{
	struct filter *filter = wanted();
	struct seen seen = {};

	if (!filter)
		return 0;
	READ(seen.device, skb + SK_BUFF_DEV_OFFSET);
	look(&seen, skb);
	if (!read_packet(&seen, network_header_of(skb), filter) || !chosen(&seen, filter))
		return 0;
	pass(&seen, STAGE_RXE_RECEIVE, 0, filter);
	return 0;
}
