/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Hook: kprobe and kretprobe ovs_dp_upcall(dp, skb, key, upcall_info, cutlen), openvswitch.ko.
 * Answers: how many packets have no flow, how long the kernel takes to hand one to ovs-vswitchd, and
 * what it returned: 0, -EAGAIN or -ENOBUFS (the handler's queue is full), -ENOTCONN (no listener).
 * Overhead: not measured; an upcall takes milliseconds where the program would take a microsecond.
 * Caveats: a kretprobe may miss returns when many run at once; the entries are counted too.
 */
#include "upcalls.h"

/* A thread does not sleep within the call; the idle threads of all CPUs have one number. */
static __always_inline u64 this_call(void)
{
	return (u64)bpf_get_smp_processor_id() << 32 | (u32)bpf_get_current_pid_tgid();
}

int on_upcall(struct pt_regs *ctx, u64 dp, u64 skb, u64 key, u64 info)
{
	struct filter *filter = wanted();
	u64 net = 0, id = this_call();
	struct seen seen = {};
	struct call call = {};
	struct journey *journey;
	u8 command = 0;

	if (!filter)
		return 0;
	READ(net, dp + DATAPATH_NET_OFFSET);
	if (namespace_of(net) != filter->netns)
		return 0;
	look(&seen, skb);
	if (!read_packet(&seen, behind_ethernet(data_of(skb)), filter) || seen.encapsulated ||
	    !chosen(&seen, filter))
		return 0;
	journey = journeys.lookup(&skb);
	if (filter->in_port[0] && !journey)
		return 0;
	READ(command, info + DP_UPCALL_INFO_CMD_OFFSET);
	seen.vni = metadata_vni(skb);
	pass(&seen, STAGE_UPCALL, 0, filter);
	call.at_ns = bpf_ktime_get_ns();
	call.flow = seen.flow;
	call.command = command;
	call.mark = seen.mark;
	call.vni = seen.vni;
	if (journey) {
		call.journey = journey->id;
		call.sampled = journey->sampled;
	}
	calls.update(&id, &call);
	return 0;
}

int on_upcall_return(struct pt_regs *ctx)
{
	u64 id = this_call(), one = 1, *times;
	struct call *call = calls.lookup(&id);
	u32 stage = STAGE_UPCALL;
	struct totals *totals = stages.lookup(&stage);
	struct upcall_key key = {};
	struct waiting_key waits = {};

	if (!call)
		return 0;
	if (totals)
		add_latency(totals, bpf_ktime_get_ns() - call->at_ns);
	key.command = call->command;
	key.result = (int)PT_REGS_RC(ctx);
	times = upcalls.lookup(&key);
	if (times)
		__sync_fetch_and_add(times, 1);
	else if (upcalls.update(&key, &one))
		count(COUNTER_MAP_FULL);
	if (!key.result) {
		waits.flow = call->flow;
		waits.mark = call->mark;
		waiting.update(&waits, call);
	}
	calls.delete(&id);
	return 0;
}
