/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Packets on their way to ovs-vswitchd and back. An entry of `calls` lives from the entry of
 * ovs_dp_upcall to its return, one of `waiting` until the packet comes back (the oldest give way), one
 * of `executing` until the actions of the packet that its thread injects begin.
 */
#ifndef NETAGENT_UPCALLS_H
#define NETAGENT_UPCALLS_H

#include "journey.h"

struct call {
	u64 at_ns;
	struct flow flow;
	u64 journey; /* its id, or 0 */
	u32 command;
	u32 vni;
	u32 mark;
	u32 sampled;
};

struct waiting_key {
	struct flow flow;
	u32 mark;
	u32 reserved;
};

BPF_HASH(calls, u64, struct call, 1024);
BPF_TABLE("lru_hash", struct waiting_key, struct call, waiting, MAX_ROWS);
BPF_HASH(upcalls, struct upcall_key, u64, 64);
BPF_HASH(executing, u64, u64, 1024);

#endif
