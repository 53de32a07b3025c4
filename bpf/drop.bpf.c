/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Hook: raw tracepoint kfree_skb(skb, location, reason), vmlinux.
 * Answers: where chosen packets, encapsulated or not, are freed as dropped, why, and which stage they
 * passed last.
 * Overhead: 1052 ns a packet of other flows (emulated).
 * It runs for every packet the machine drops.
 * Caveats: reasons came with kernel 5.17; before, only the location is known. The packet is read where
 * the stack noted its network header. Copies for packet captures that a filter refuses show up at
 * packet_rcv and tpacket_rcv.
 */
#include "drops.h"

int on_drop(struct bpf_raw_tracepoint_args *ctx)
{
	u64 skb = ctx->args[0];
	struct filter *filter = wanted();
	struct drop_key key = {};
	struct journey *journey;
	struct seen seen = {};

	if (!filter)
		return 0;
	journey = journeys.lookup(&skb);
	READ(seen.device, skb + SK_BUFF_DEV_OFFSET);
	if (seen.device ? device_namespace(seen.device) != filter->netns : !journey)
		return 0;
	look(&seen, skb);
	if (!read_packet(&seen, network_header_of(skb), filter) || !chosen(&seen, filter))
		return 0;
	if (!seen.vni)
		seen.vni = metadata_vni(skb);
	if (filter->with_vni && seen.vni && seen.vni != filter->vni)
		return 0;
	if (filter->in_port[0] && !journey)
		return 0;
	key.location = ctx->args[1];
	key.reason = DROPS_HAVE_REASONS ? (u32)ctx->args[2] : 0;
	key.after = journey ? journey->stage : STAGES;
	if (seen.device)
		READ(key.device, seen.device + NET_DEVICE_NAME_OFFSET);
	count_drop(&key);
	if (journey && journey->sampled)
		send_event(&seen, journey->id, STAGE_DROPPED, key.reason, key.location);
	journeys.delete(&skb);
	return 0;
}
