/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Reads packets. Kernel structs are addresses here and their fields are at the *_OFFSET the loader
 * takes from the running kernel's BTF, so no kernel header is compiled (18 s against 1 s emulated).
 */
#ifndef NETAGENT_PACKET_H
#define NETAGENT_PACKET_H

#include <uapi/linux/ptrace.h>

#include "abi.h"

#define READ(to, address) bpf_probe_read_kernel(&(to), sizeof(to), (void *)(address))

#define ETH_IPV4 0x0800
#define ETH_IPV6 0x86dd
#define ETH_VLAN 0x8100
#define ETH_QINQ 0x88a8
#define IP_TCP 6
#define IP_UDP 17
#define ROCE_PORT 4791
#define METADATA 0x80 /* DST_METADATA of net/dst.h, which BTF does not name */

struct ipv4_header {
	u8 version_and_words;
	u8 tos;
	u16 length;
	u16 ident;
	u16 fragment;
	u8 ttl;
	u8 protocol;
	u16 sum;
	u32 source;
	u32 target;
};

struct ipv6_header {
	u32 label;
	u16 length;
	u8 protocol;
	u8 hops;
}; /* the addresses follow */

#define IPV6_BYTES 40

union ip_header {
	u8 version; /* in the upper half */
	struct ipv4_header v4;
	struct ipv6_header v6;
};

/* A packet as one hook sees it. */
struct seen {
	u64 skb;
	u64 device;  /* struct net_device, or 0 */
	u64 end;     /* of the linear part */
	u32 bytes;
	u32 vni;
	u32 mark;       /* tells packets of one flow apart while they are at ovs-vswitchd */
	u32 short_mark; /* what `mark` is where only headers are in the linear part */
	u16 outer_port;
	u8 encapsulated;
	u8 resumes_sampled;
	u64 resumes; /* the journey it continues, back from ovs-vswitchd; or 0 */
	struct flow flow;   /* the inner one, if encapsulated */
	union address outer_source;
	union address outer_target;
};

BPF_ARRAY(config, struct filter, 1);
BPF_PERCPU_ARRAY(counters, u64, COUNTERS);

static __always_inline void count(u32 counter)
{
	u64 *value = counters.lookup(&counter);

	if (value)
		*value += 1;
}

static __always_inline u32 namespace_of(u64 net)
{
	u32 inode = 0;

	READ(inode, net + NET_NS_OFFSET + NS_COMMON_INUM_OFFSET);
	return inode;
}

static __always_inline u32 device_namespace(u64 device)
{
	u64 net = 0;

	READ(net, device + NET_DEVICE_ND_NET_OFFSET);
	return namespace_of(net);
}

static __always_inline u32 flags_of(u64 device)
{
	u32 flags = 0; /* those that matter are in the lower half, and little-endian comes first */

	READ(flags, device + NET_DEVICE_PRIV_FLAGS_OFFSET);
	return flags;
}

/* A device that the datapath took: a container's port, a tunnel, an uplink. */
static __always_inline int is_switch_port(u64 device)
{
	return flags_of(device) & IFF_OVS_DATAPATH;
}

/* A device of the datapath's own, such as a bridge's: what it sends the datapath gets. */
static __always_inline int is_internal_port(u64 device)
{
	return flags_of(device) & IFF_OPENVSWITCH;
}

/* Tell whether `name` is what `device` is called; no name fits all. */
static __always_inline int is_called(u64 device, const char *name)
{
	const u64 *wanted = (const u64 *)name;
	u64 found[2] = {};

	if (!wanted[0])
		return 1;
	READ(found, device + NET_DEVICE_NAME_OFFSET);
	return found[0] == wanted[0] && found[1] == wanted[1];
}

/* VNI in the packet's metadata: as received, or as an action set it. 0: none. */
static __always_inline u32 metadata_vni(u64 skb)
{
	u64 dst = 0, id = 0;
	u16 flags = 0;
	u32 type = 0;

	READ(dst, skb + SK_BUFF__SKB_REFDST_OFFSET);
	dst &= ~1ull; /* SKB_DST_NOREF */
	if (!dst)
		return 0;
	READ(flags, dst + DST_ENTRY_FLAGS_OFFSET);
	READ(type, dst + METADATA_DST_TYPE_OFFSET);
	if (!(flags & METADATA) || type)
		return 0;
	READ(id, dst + METADATA_DST_U_OFFSET + IP_TUNNEL_INFO_KEY_OFFSET +
		 IP_TUNNEL_KEY_TUN_ID_OFFSET);
	return (u32)bpf_ntohll(id) & 0xffffff;
}

static __always_inline void look(struct seen *seen, u64 skb)
{
	u64 head = 0;
	u32 tail = 0;

	seen->skb = skb;
	READ(seen->bytes, skb + SK_BUFF_LEN_OFFSET);
	READ(head, skb + SK_BUFF_HEAD_OFFSET);
	READ(tail, skb + SK_BUFF_TAIL_OFFSET);
	seen->end = head + tail;
}

static __always_inline u64 data_of(u64 skb)
{
	u64 data = 0;

	READ(data, skb + SK_BUFF_DATA_OFFSET);
	return data;
}

static __always_inline u64 network_header_of(u64 skb)
{
	u64 head = 0;
	u16 offset = 0;

	READ(head, skb + SK_BUFF_HEAD_OFFSET);
	READ(offset, skb + SK_BUFF_NETWORK_HEADER_OFFSET);
	return head + offset;
}

/* Return the address of the IP header behind an Ethernet header, or 0. */
static __always_inline u64 behind_ethernet(u64 at)
{
	u16 type = 0;

	READ(type, at + 12);
	if (type == bpf_htons(ETH_VLAN) || type == bpf_htons(ETH_QINQ)) {
		at += 4;
		READ(type, at + 12);
	}
	return type == bpf_htons(ETH_IPV4) || type == bpf_htons(ETH_IPV6) ? at + 14 : 0;
}

static __always_inline void map_address(union address *to, u32 from)
{
	to->words[0] = 0;
	to->words[1] = 0;
	to->words[2] = bpf_htonl(0xffff);
	to->words[3] = from;
}

/* Return the address behind the IPv4 header `ip` at `at`, 1 if ports are elsewhere, or 0. */
static __always_inline u64 behind_ipv4(struct seen *seen, u64 at, const struct ipv4_header *ip,
				       struct flow *flow)
{
	u32 words = ip->version_and_words & 15;

	if (words < 5)
		return 0;
	map_address(&flow->source, ip->source);
	map_address(&flow->target, ip->target);
	flow->protocol = ip->protocol;
	seen->mark = ip->ident;
	seen->short_mark = ip->ident;
	return ip->fragment & bpf_htons(0x1fff) ? 1 : at + words * 4;
}

/* Tell whether another header of IPv6 follows, not a protocol's (RFC 8200, 4.1; RFC 7045, 4). */
static __always_inline int is_extension(u8 protocol)
{
	switch (protocol) {
	case 0:   /* hop-by-hop options */
	case 43:  /* routing */
	case 44:  /* fragment */
	case 51:  /* authentication */
	case 60:  /* destination options */
	case 135: /* mobility */
	case 139: /* HIP */
	case 140: /* Shim6 */
		return 1;
	}
	return 0;
}

/*
 * Return the address behind the IPv6 header `ip` at `at`, or 0. It has no identification: a packet is
 * known again by its length, and by what nobody rewrites: bytes 8 to 15 of UDP's payload (RoCE's
 * sequence number, a probe's number), the sequence numbers of TCP and of echoes.
 */
static __always_inline u64 behind_ipv6(struct seen *seen, u64 at, const struct ipv6_header *ip,
				       struct flow *flow)
{
	u64 behind = at + IPV6_BYTES, telling;
	u32 words[2] = {};

	if (behind > seen->end || is_extension(ip->protocol)) {
		count(COUNTER_UNREADABLE);
		return 0;
	}
	bpf_probe_read_kernel(&flow->source, 2 * sizeof(union address), (void *)(at + sizeof(*ip)));
	flow->protocol = ip->protocol;
	telling = behind + (ip->protocol == IP_UDP ? 16 : 4);
	if (telling + sizeof(words) <= seen->end)
		READ(words, telling);
	seen->short_mark = ip->length;
	seen->mark = ip->length ^ words[0] ^ words[1];
	return behind;
}

/* Read addresses and ports at `at`; return the address of the payload behind UDP, 1, or 0. */
static __always_inline u64 read_flow(struct seen *seen, u64 at, struct flow *flow)
{
	union ip_header ip = {};
	u16 ports[2] = {};

	if (!at)
		return 0;
	if (at + sizeof(ip) > seen->end) {
		count(COUNTER_UNREADABLE);
		return 0;
	}
	READ(ip, at);
	flow->version = ip.version >> 4;
	if (flow->version == 4)
		at = behind_ipv4(seen, at, &ip.v4, flow);
	else if (flow->version == 6)
		at = behind_ipv6(seen, at, &ip.v6, flow);
	else
		return 0;
	if (at <= 1 || (flow->protocol != IP_UDP && flow->protocol != IP_TCP))
		return at != 0;
	if (at + sizeof(ports) > seen->end)
		return 1;
	READ(ports, at);
	flow->source_port = ports[0];
	flow->target_port = ports[1];
	return flow->protocol == IP_UDP ? at + 8 : 1;
}

/* Read the packet whose IP header is at `at`, and the one inside it. Return 0 if it is none. */
static __always_inline int read_packet(struct seen *seen, u64 at, const struct filter *filter)
{
	u64 payload = read_flow(seen, at, &seen->flow);
	u32 vni = 0;
	u8 words = 0;

	if (payload <= 1 || seen->flow.target_port != filter->tunnel_port)
		return payload != 0;
	if (payload + 8 > seen->end)
		return 0;
	READ(vni, payload + 4);
	seen->vni = bpf_ntohl(vni) >> 8;
	if (filter->geneve) { /* RFC 8926: the first byte counts words of options */
		READ(words, payload);
		payload += (words & 63) * 4;
	}
	seen->encapsulated = 1;
	seen->outer_source = seen->flow.source;
	seen->outer_target = seen->flow.target;
	seen->outer_port = seen->flow.source_port;
	__builtin_memset(&seen->flow, 0, sizeof(seen->flow));
	return read_flow(seen, behind_ethernet(payload + 8), &seen->flow) != 0;
}

static __always_inline int fits(const union address *found, const union address *mask,
				const union address *wanted)
{
	return (found->halves[0] & mask->halves[0]) == wanted->halves[0] &&
	       (found->halves[1] & mask->halves[1]) == wanted->halves[1];
}

/* Tell whether the flow is a chosen one; its VNI is looked at elsewhere. */
static __always_inline int chosen(const struct seen *seen, const struct filter *filter)
{
	const struct flow *flow = &seen->flow;

	if (filter->version && flow->version != filter->version)
		return 0;
	if (!fits(&flow->source, &filter->source_mask, &filter->source))
		return 0;
	if (!fits(&flow->target, &filter->target_mask, &filter->target))
		return 0;
	if (filter->protocol && flow->protocol != filter->protocol)
		return 0;
	if (filter->source_port && flow->source_port != filter->source_port)
		return 0;
	return !filter->target_port || flow->target_port == filter->target_port;
}

/* Return what is wanted; 0 before the trace begins and when it has ended. */
static __always_inline struct filter *wanted(void)
{
	u32 zero = 0;
	struct filter *filter = config.lookup(&zero);

	return filter && filter->netns ? filter : 0;
}

#endif
