/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Hook: kprobe vxlan_xmit(skb, dev), vxlan.ko; geneve_xmit(skb, dev), geneve.ko.
 * Answers: which packets are about to be encapsulated, and with which VNI.
 * Overhead: 988 ns a packet of other flows, 2.7 us on average where half are chosen ones (emulated).
 * Caveats: the outer header does not exist yet; `device_transmit` shows it.
 */
#include "journey.h"

int on_encapsulate(struct pt_regs *ctx, u64 skb, u64 device)
{
	struct filter *filter = wanted();
	struct seen seen = {};

	if (!filter || device_namespace(device) != filter->netns)
		return 0;
	seen.device = device;
	look(&seen, skb);
	if (!read_packet(&seen, behind_ethernet(data_of(skb)), filter) || seen.encapsulated ||
	    !chosen(&seen, filter))
		return 0;
	seen.vni = metadata_vni(skb);
	pass(&seen, STAGE_ENCAPSULATE, 0, filter);
	return 0;
}
