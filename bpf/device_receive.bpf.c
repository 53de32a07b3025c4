/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Hook: raw tracepoint netif_receive_skb(skb), vmlinux: before tc, packet filters and the switch.
 * Answers: which encapsulated packets arrived on this host and with which outer header, and RoCE (UDP
 * 4791) that passes the kernel instead of the RNIC.
 * Overhead: 542 ns a packet of other flows (emulated).
 * It runs for every packet that any device of the machine receives.
 * Caveats: skb->data is at the IP header. What GRO merged counts as one packet. What XDP or the hardware
 * took is not seen.
 */
#include "wire.h"

int on_device_receive(struct bpf_raw_tracepoint_args *ctx)
{
	struct filter *filter = wanted();
	u64 skb = ctx->args[0];
	struct seen seen = {};

	if (!filter)
		return 0;
	READ(seen.device, skb + SK_BUFF_DEV_OFFSET);
	if (!seen.device || device_namespace(seen.device) != filter->netns)
		return 0;
	look(&seen, skb);
	if (!read_packet(&seen, data_of(skb), filter))
		return 0;
	count_roce(&seen, 0);
	if (!seen.encapsulated || !chosen(&seen, filter) ||
	    !is_called(seen.device, filter->uplink) || is_internal_port(seen.device) ||
	    filter->in_port[0])
		return 0;
	if (pass(&seen, STAGE_UPLINK_RECEIVE, 1, filter))
		count_outer(&seen, 0);
	return 0;
}
