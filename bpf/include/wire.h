/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What devices send and receive: outer headers by inner flow, and RoCE that no hardware took. */
#ifndef NETAGENT_WIRE_H
#define NETAGENT_WIRE_H

#include "journey.h"

BPF_HASH(outers, struct outer_key, u64, MAX_ROWS);
BPF_HASH(roce, struct roce_key, u64, 256);

static __always_inline void count_outer(const struct seen *seen, u8 transmitted)
{
	struct outer_key key = {};
	u64 one = 1, *packets;

	key.inner = seen->flow;
	key.source = seen->outer_source;
	key.target = seen->outer_target;
	key.vni = seen->vni;
	key.source_port = seen->outer_port;
	key.transmitted = transmitted;
	packets = outers.lookup(&key);
	if (packets)
		__sync_fetch_and_add(packets, 1);
	else if (outers.update(&key, &one))
		count(COUNTER_MAP_FULL);
}

static __always_inline void count_roce(const struct seen *seen, u32 transmitted)
{
	struct roce_key key = {};
	u64 one = 1, *packets;

	if (seen->flow.protocol != IP_UDP || seen->flow.target_port != bpf_htons(ROCE_PORT))
		return;
	key.transmitted = transmitted;
	key.encapsulated = seen->encapsulated;
	READ(key.device, seen->device + NET_DEVICE_NAME_OFFSET);
	packets = roce.lookup(&key);
	if (packets)
		__sync_fetch_and_add(packets, 1);
	else if (roce.update(&key, &one))
		count(COUNTER_MAP_FULL);
}

#endif
