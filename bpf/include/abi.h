/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * What the programs and their reader agree on. Keep in sync with abi.py; a test compiles this file
 * and compares every offset. Plain C, fixed widths, no padding that is not named.
 *
 * Addresses and ports are in network byte order; times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef NETAGENT_ABI_H
#define NETAGENT_ABI_H

#include <linux/types.h>

/* Stages in the order a packet passes them, on its way out and on its way in. */
enum stage {
	STAGE_RXE_TRANSMIT,    /* Soft-RoCE hands a packet to the IP stack */
	STAGE_UPLINK_RECEIVE,  /* encapsulated, a device took it from the wire */
	STAGE_DECAPSULATE,     /* the tunnel's driver has it, still encapsulated */
	STAGE_PORT_RECEIVE,    /* the datapath, from a container's port */
	STAGE_TUNNEL_RECEIVE,  /* the datapath, from a tunnel */
	STAGE_LOOKUP,          /* the flow table is asked */
	STAGE_UPCALL,          /* no flow: on its way to ovs-vswitchd; latency is that of the call */
	STAGE_EXECUTE,         /* back from ovs-vswitchd; latency since its upcall */
	STAGE_ACTIONS,         /* actions are executed */
	STAGE_OUTPUT,          /* the datapath sends it to a port */
	STAGE_PORT_TRANSMIT,   /* the port's device transmits it, not encapsulated */
	STAGE_ENCAPSULATE,     /* the tunnel's driver has it, not yet encapsulated */
	STAGE_UPLINK_TRANSMIT, /* encapsulated, handed to a device's driver */
	STAGE_RXE_RECEIVE,     /* Soft-RoCE takes it from UDP */
	STAGE_DROPPED,         /* freed as dropped; in events only */
	STAGES,
};

#define BUCKETS 128
#define NAME_BYTES 16

/* An IPv6 address, or an IPv4 one as IPv6 maps it, ::ffff:a.b.c.d (RFC 4291, 2.5.5.2). */
union address {
	__u32 words[4];
	__u64 halves[2];
};

/* The one entry of the array `config`. Zero means: any. */
struct filter {
	union address source;
	union address source_mask;
	union address target;
	union address target_mask;
	char in_port[NAME_BYTES];
	char uplink[NAME_BYTES];
	__u32 netns;        /* inode of the switch's network namespace; here 0 means: count nothing */
	__u32 vni;
	__u32 journeys_per_s;  /* packets followed from stage to stage, per second */
	__u32 events_per_s;
	__u16 source_port;
	__u16 target_port;
	__u16 tunnel_port;  /* UDP destination port of the tunnels */
	__u8 protocol;
	__u8 version;       /* 4 or 6: of IP, inside of the tunnels */
	__u8 with_vni;      /* 0: any VNI */
	__u8 geneve;        /* 1: the tunnels are Geneve's, with options; 0: VXLAN's */
	__u8 reserved[6];
};

struct flow {
	union address source;
	union address target;
	__u16 source_port;
	__u16 target_port;
	__u8 protocol;
	__u8 version;       /* 4 or 6 */
	__u8 reserved[2];
};

/* Per CPU and stage, in the array `stages`. */
struct totals {
	__u64 packets;
	__u64 octets;
	__u64 repeats;  /* further passes of packets already counted: recirculation, a bond's slave */
	__u64 foreign;  /* of the flow, but with another VNI; not in `packets` */
	__u64 buckets[BUCKETS];  /* nanoseconds since the stage before, four steps per power of two */
};

struct port_key {
	__u32 stage;
	__u32 vni;      /* 0: none, or not known yet */
	char device[NAME_BYTES];
};

struct drop_key {
	__u64 location;  /* instruction that freed the packet; 0: a flow without actions */
	__u32 reason;    /* enum skb_drop_reason; 0 where the kernel has none */
	__u32 after;     /* last stage passed, or STAGES if the packet was not followed */
	char device[NAME_BYTES];
};

struct upcall_key {
	__u32 command;  /* OVS_PACKET_CMD_MISS 1, OVS_PACKET_CMD_ACTION 2 */
	__s32 result;   /* 0 or a negative errno */
};

/* Inner flow and what the wire sees of it. */
struct outer_key {
	struct flow inner;
	union address source;
	union address target;
	__u32 vni;
	__u16 source_port;
	__u8 transmitted;  /* 1: by this host; 0: received */
	__u8 reserved;
};

/* UDP 4791 that came by the kernel, whatever the filter. */
struct roce_key {
	__u32 transmitted;
	__u32 encapsulated;
	char device[NAME_BYTES];
};

/* One packet at one stage, in the ring buffer `events`. */
struct event {
	__u64 at_ns;
	__u64 journey;   /* equal for all events of one packet */
	__u64 location;  /* of a drop */
	struct flow flow;
	__u32 stage;
	__u32 vni;
	__u32 reason;    /* of a drop */
	__u16 outer_port;  /* UDP source port of the outer packet, or 0 */
	__u16 reserved;
	char device[NAME_BYTES];
};

/* What did not happen, in the array `counters`. */
enum counter {
	COUNTER_EVENTS_LOST,   /* the ring buffer was full */
	COUNTER_NOT_FOLLOWED,  /* packets over journeys_per_s */
	COUNTER_NOT_SAMPLED,   /* followed packets without events, over events_per_s */
	COUNTER_UNREADABLE,    /* headers not in the linear part, or behind IPv6's extension headers */
	COUNTER_MAP_FULL,
	COUNTERS,
};

#endif
