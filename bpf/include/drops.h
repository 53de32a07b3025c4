/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Packets that ended, by where and why. */
#ifndef NETAGENT_DROPS_H
#define NETAGENT_DROPS_H

#include "journey.h"

BPF_HASH(drops, struct drop_key, u64, MAX_ROWS);

static __always_inline void count_drop(struct drop_key *key)
{
	u64 one = 1, *packets = drops.lookup(key);

	if (packets)
		__sync_fetch_and_add(packets, 1);
	else if (drops.update(key, &one))
		count(COUNTER_MAP_FULL);
}

#endif
