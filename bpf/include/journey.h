/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Counts packets at stages and follows single ones from stage to stage.
 *
 * An entry of `journeys` is made where a packet enters (a first stage), refreshed at each stage,
 * and removed when the packet is freed as dropped. Packets that end otherwise leave theirs behind:
 * the next packet in the same sk_buff starts anew at its first stage, the oldest give way (LRU).
 */
#ifndef NETAGENT_JOURNEY_H
#define NETAGENT_JOURNEY_H

#include "packet.h"

#define SECOND_NS 1000000000ull
#define EVENTS_PER_JOURNEY 16

struct journey {
	u64 id;
	u64 last_ns;
	u32 stage;
	u32 sampled;
	u32 vni; /* as far as known: packets that come back from an upcall carry none */
	u32 reserved;
};

struct allowance {
	u64 since_ns;
	u32 journeys;
	u32 events;
};

BPF_PERCPU_ARRAY(stages, struct totals, STAGES);
BPF_TABLE("lru_hash", u64, struct journey, journeys, MAX_JOURNEYS);
BPF_HASH(ports, struct port_key, u64, MAX_ROWS);
BPF_ARRAY(allowances, struct allowance, 1);
BPF_RINGBUF_OUTPUT(events, RING_PAGES);

/* Four steps per power of two: exact up to 4, then bucket = 4 * (log2 - 1) + the next two bits. */
static __always_inline u32 bucket_of(u64 ns)
{
	u32 value, power = 0;

	if (ns >= 1ull << 32)
		return BUCKETS - 1;
	value = (u32)ns;
	if (value < 4)
		return value;
	if (value >> 16) { power += 16; value >>= 16; }
	if (value >> 8) { power += 8; value >>= 8; }
	if (value >> 4) { power += 4; value >>= 4; }
	if (value >> 2) { power += 2; value >>= 2; }
	power += value >> 1;
	return (4 * (power - 1) + (((u32)ns >> (power - 2)) & 3)) & (BUCKETS - 1);
}

static __always_inline void add_latency(struct totals *totals, u64 ns)
{
	totals->buckets[bucket_of(ns) & (BUCKETS - 1)] += 1;
}

/* Allow one more packet to be followed: 0 no, 1 without events, 2 with. */
static __always_inline int allow(const struct filter *filter, u64 now)
{
	u32 zero = 0;
	struct allowance *allowance = allowances.lookup(&zero);

	if (!allowance)
		return 0;
	if (now - allowance->since_ns >= SECOND_NS) { /* two CPUs may both begin it: no harm */
		allowance->since_ns = now;
		allowance->journeys = 0;
		allowance->events = 0;
	}
	if (allowance->journeys >= filter->journeys_per_s) {
		count(COUNTER_NOT_FOLLOWED);
		return 0;
	}
	__sync_fetch_and_add(&allowance->journeys, 1);
	if (!filter->events_per_s)
		return 1;
	if (allowance->events + EVENTS_PER_JOURNEY > filter->events_per_s) {
		count(COUNTER_NOT_SAMPLED);
		return 1;
	}
	__sync_fetch_and_add(&allowance->events, EVENTS_PER_JOURNEY);
	return 2;
}

static __always_inline void send_event(const struct seen *seen, u64 journey, u32 stage, u32 reason,
				       u64 location)
{
	struct event *event = events.ringbuf_reserve(sizeof(struct event)); /* the stack is small */

	if (!event) {
		count(COUNTER_EVENTS_LOST);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->at_ns = bpf_ktime_get_ns();
	event->journey = journey;
	event->location = location;
	event->flow = seen->flow;
	event->stage = stage;
	event->vni = seen->vni;
	event->reason = reason;
	event->outer_port = seen->outer_port;
	if (seen->device)
		READ(event->device, seen->device + NET_DEVICE_NAME_OFFSET);
	events.ringbuf_submit(event, 0);
}

static __always_inline void count_port(const struct seen *seen, u32 stage)
{
	struct port_key key = {};
	u64 one = 1, *packets;

	key.stage = stage;
	key.vni = seen->vni;
	if (seen->device)
		READ(key.device, seen->device + NET_DEVICE_NAME_OFFSET);
	packets = ports.lookup(&key);
	if (packets)
		__sync_fetch_and_add(packets, 1);
	else if (ports.update(&key, &one))
		count(COUNTER_MAP_FULL);
}

/* Begin to follow a packet at its first stage, if it is allowed. */
static __always_inline void begin(struct journey *begun, const struct seen *seen, u32 stage,
				  u64 now, const struct filter *filter)
{
	u64 skb = seen->skb;
	int allowed = seen->resumes ? 1 + seen->resumes_sampled : allow(filter, now);

	if (!allowed)
		return;
	begun->id = seen->resumes ? seen->resumes : now ^ (skb << 20);
	begun->stage = stage;
	begun->last_ns = now;
	begun->vni = seen->vni;
	begun->sampled = allowed == 2;
	journeys.update(&skb, begun);
}

/* Count a chosen packet at `stage`; `first`: packets may begin here. Return 0 if it is none. */
static __always_inline int pass(struct seen *seen, u32 stage, int first,
				const struct filter *filter)
{
	u64 now = bpf_ktime_get_ns(), skb = seen->skb, since = 0, sampled = 0;
	struct journey *journey = journeys.lookup(&skb), begun = {};
	struct totals *totals = stages.lookup(&stage);

	if (!totals)
		return 0;
	if (journey && first &&
	    (journey->stage >= stage || now - journey->last_ns >= SECOND_NS)) {
		journeys.delete(&skb); /* of an earlier packet in this sk_buff */
		journey = 0;
	}
	if (journey && journey->stage >= stage) {
		totals->repeats += 1;
		return 0;
	}
	if (journey) {
		if (!seen->vni)
			seen->vni = journey->vni;
		since = journey->last_ns;
		sampled = journey->sampled ? journey->id : 0;
		journey->last_ns = now;
		journey->stage = stage;
		journey->vni = seen->vni;
	} else if (first) {
		begin(&begun, seen, stage, now, filter);
		sampled = begun.sampled ? begun.id : 0;
	}
	/* Behind the port, only a followed packet is known to have come in by it. */
	if (filter->in_port[0] && !journey && !begun.id)
		return 0;
	count_port(seen, stage);
	if (filter->with_vni && seen->vni && seen->vni != filter->vni) {
		totals->foreign += 1;
		return 1;
	}
	totals->packets += 1;
	totals->octets += seen->bytes;
	if (since && stage != STAGE_UPCALL) /* its return tells */
		add_latency(totals, now - since);
	if (sampled)
		send_event(seen, sampled, stage, 0, 0);
	return 1;
}

#endif
