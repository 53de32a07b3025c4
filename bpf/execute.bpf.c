/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Hook: kprobe and kretprobe ovs_packet_cmd_execute(skb, info), openvswitch.ko.
 * Answers: nothing alone. It marks the thread of ovs-vswitchd that injects a packet, so that `actions`
 * knows a packet that came back from an upcall.
 * Overhead: one map update and one removal for each packet that ovs-vswitchd injects.
 * Caveats: none known.
 */
#include "upcalls.h"

int on_execute(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();

	executing.update(&id, &now);
	return 0;
}

int on_execute_return(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();

	executing.delete(&id);
	return 0;
}
