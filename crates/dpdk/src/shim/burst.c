/* Receive, transmit, allocation and free of frames, with one call per burst. */
#include <errno.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>
#include <rte_ring.h>
#include <rte_version.h>

#include "shim.h"

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or newer is needed"
#endif

/* The four flags of received checksums form a four-bit index. */
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_BAD == 1 << 3 && RTE_MBUF_F_RX_IP_CKSUM_BAD == 1 << 4 &&
	       RTE_MBUF_F_RX_IP_CKSUM_GOOD == 1 << 7 && RTE_MBUF_F_RX_L4_CKSUM_GOOD == 1 << 8,
	       "the flags of received checksums moved");
_Static_assert(sizeof(struct rte_mbuf) == SLUICE_ROOM, "a buffer's room begins elsewhere");
#define L4_BAD 1
#define L3_BAD 2
#define L3_GOOD 4
#define L4_GOOD 8

/* Both good and bad set means "none": for L4, a local sender left the checksum to us. A good L4 checksum alone does
 * not confirm L3, so both are then computed. */
static const uint8_t checksums_of_flags[16] = {
	[L3_GOOD | L4_GOOD] = SLUICE_CHECKSUMS_VOUCHED,
	[L4_BAD] = SLUICE_CHECKSUMS_BAD_L4,
	[L4_BAD | L3_GOOD] = SLUICE_CHECKSUMS_BAD_L4,
	[L4_BAD | L3_GOOD | L3_BAD] = SLUICE_CHECKSUMS_BAD_L4,
	[L3_BAD] = SLUICE_CHECKSUMS_BAD_L3,
	[L3_BAD | L4_BAD] = SLUICE_CHECKSUMS_BAD_L3,
	[L3_BAD | L4_GOOD] = SLUICE_CHECKSUMS_BAD_L3,
	[L3_BAD | L4_GOOD | L4_BAD] = SLUICE_CHECKSUMS_BAD_L3,
	[L4_GOOD | L4_BAD] = SLUICE_CHECKSUMS_LEFT,
	[L4_GOOD | L4_BAD | L3_GOOD] = SLUICE_CHECKSUMS_LEFT,
	[L4_GOOD | L4_BAD | L3_GOOD | L3_BAD] = SLUICE_CHECKSUMS_LEFT,
};

/* The inverse mapping, so that verified checksums stay verified over a ring. */
static const uint64_t flags_of_checksums[5] = {
	[SLUICE_CHECKSUMS_VOUCHED] = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD,
	[SLUICE_CHECKSUMS_BAD_L3] = RTE_MBUF_F_RX_IP_CKSUM_BAD,
	[SLUICE_CHECKSUMS_BAD_L4] = RTE_MBUF_F_RX_L4_CKSUM_BAD,
	[SLUICE_CHECKSUMS_LEFT] = RTE_MBUF_F_RX_L4_CKSUM_NONE,
};

static inline uint8_t checksums(uint64_t flags)
{
	return checksums_of_flags[((flags >> 3) & 3) | ((flags >> 5) & 12)];
}

/* Insert a stripped VLAN tag after the MAC addresses. */
static int insert_tag(struct rte_mbuf *m, uint16_t type, uint16_t tag)
{
	uint8_t *frame;

	if (rte_pktmbuf_data_len(m) < 2 * RTE_ETHER_ADDR_LEN || rte_pktmbuf_headroom(m) < RTE_VLAN_HLEN)
		return -ENOSPC;
	frame = (uint8_t *)rte_pktmbuf_prepend(m, RTE_VLAN_HLEN);
	memmove(frame, frame + RTE_VLAN_HLEN, 2 * RTE_ETHER_ADDR_LEN);
	frame[12] = type >> 8;
	frame[13] = type & 0xff;
	frame[14] = tag >> 8;
	frame[15] = tag & 0xff;
	return 0;
}

static __rte_noinline uint8_t repair(struct rte_mbuf *m)
{
	const struct rte_mbuf *s;

	for (s = m; s != NULL; s = s->next)
		if (rte_mbuf_refcnt_read(s) != 1 || !RTE_MBUF_DIRECT(s))
			return SLUICE_FAULT_SHARED;
	if (m->pkt_len == 0 || m->pkt_len > UINT16_MAX)
		return SLUICE_FAULT_LENGTH;
	if (m->nb_segs > 1 && rte_pktmbuf_linearize(m) != 0)
		return SLUICE_FAULT_TOO_LONG;
	/* RX_VLAN without RX_VLAN_STRIPPED means that the tag is in the frame. */
	if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) {
		if (insert_tag(m, RTE_ETHER_TYPE_VLAN, m->vlan_tci) != 0)
			return SLUICE_FAULT_TOO_LONG;
		if ((m->ol_flags & RTE_MBUF_F_RX_QINQ_STRIPPED) &&
		    insert_tag(m, RTE_ETHER_TYPE_QINQ, m->vlan_tci_outer) != 0)
			return SLUICE_FAULT_TOO_LONG;
		m->ol_flags &= ~(RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_RX_QINQ_STRIPPED);
	}
	return SLUICE_FAULT_NONE;
}

/* DPDK's drivers write these fields as one word: data offset, reference count, number of segments. */
_Static_assert(offsetof(struct rte_mbuf, refcnt) == offsetof(struct rte_mbuf, rearm_data) + 2 &&
	       offsetof(struct rte_mbuf, nb_segs) == offsetof(struct rte_mbuf, rearm_data) + 4,
	       "references and segments moved");

#define UNUSUAL_FLAGS (RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_RX_QINQ_STRIPPED | RTE_MBUF_F_INDIRECT | \
		       RTE_MBUF_F_EXTERNAL | RTE_MBUF_F_TX_OFFLOAD_MASK)
#define CHECKSUM_FLAGS (RTE_MBUF_F_RX_L4_CKSUM_MASK | RTE_MBUF_F_RX_IP_CKSUM_MASK)
#define GOOD_CHECKSUMS (RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_GOOD)

/* 0 for a buffer with one segment and one reference. */
static inline uint32_t is_shared(const struct rte_mbuf *m)
{
	uint32_t one_each;

	memcpy(&one_each, (const char *)&m->rearm_data + 2, sizeof(one_each));
	return one_each ^ 0x00010001;
}

/* 0 for a buffer that can be used, and sent, as it is. Offload flags of another sender must not be sent. */
static inline uint64_t unusual(const struct rte_mbuf *m)
{
	/* The length must be 1 to 65,535 bytes. */
	return is_shared(m) | (m->ol_flags & UNUSUAL_FLAGS) | ((m->pkt_len - 1) | m->pkt_len) >> 16;
}

/* Buffers have no fault, except for those that look_closely marks. */
static inline void look(struct rte_mbuf *m, struct sluice_room *room, struct sluice_window *window)
{
	const struct sluice_window frame = { m->data_off, m->data_len, SLUICE_CHECKSUMS_VOUCHED, 0 };

	room->start = m->buf_addr;
	room->length = m->buf_len;
	*window = frame;
}

static inline void settle(struct rte_mbuf *m, const struct sluice_window *window)
{
	m->data_off = window->start;
	m->data_len = window->length;
	m->pkt_len = window->length;
	m->ol_flags = flags_of_checksums[window->checksums];
}

/* Repair unusual buffers, and store the state of checksums that are not vouched for. Returns a mask of the buffers that can't be
 * used. */
static __rte_noinline uint64_t look_closely(struct rte_mbuf **buffers, struct sluice_room *rooms,
		struct sluice_window *windows, uint16_t count)
{
	uint64_t faulty = 0;
	uint16_t i, fault;

	for (i = 0; i < count; i++) {
		struct rte_mbuf *m = buffers[i];

		if (unlikely(unusual(m) != 0)) {
			fault = repair(m);
			faulty |= (uint64_t)(fault != SLUICE_FAULT_NONE) << i;
			look(m, &rooms[i], &windows[i]);
			rooms[i].fault = fault;
			windows[i].changed = 1;
		}
		if ((m->ol_flags & CHECKSUM_FLAGS) != GOOD_CHECKSUMS) {
			windows[i].checksums = checksums(m->ol_flags);
			/* A checksum that is left to the device needs offload flags. */
			windows[i].changed |= windows[i].checksums == SLUICE_CHECKSUMS_LEFT;
		}
	}
	return faulty;
}

uint16_t sluice_receive(uint16_t port, uint16_t queue, struct rte_mbuf **buffers, struct sluice_room *rooms,
		struct sluice_window *windows, uint16_t count, uint64_t *faults)
{
	uint64_t flags = 0;
	uint32_t shared = 0, lengths = 0;
	uint16_t i, n;

	n = rte_eth_rx_burst(port, queue, buffers, RTE_MIN(count, SLUICE_BURST));
	for (i = 0; i < n; i++)
		rte_prefetch0(buffers[i]);
	for (i = 0; i < n; i++) {
		struct rte_mbuf *m = buffers[i];

		rte_prefetch0(rte_pktmbuf_mtod(m, void *));
		flags |= m->ol_flags ^ GOOD_CHECKSUMS;
		shared |= is_shared(m);
		lengths |= (m->pkt_len - 1) | m->pkt_len;
		look(m, &rooms[i], &windows[i]);
	}
	*faults = 0;
	if (unlikely(((flags & (UNUSUAL_FLAGS | CHECKSUM_FLAGS)) | shared | lengths >> 16) != 0))
		*faults = look_closely(buffers, rooms, windows, n);
	return n;
}

/* Pass a checksum that a local sender left to us on to the device; find its start with a short parse of the header. */
static __rte_noinline void leave_to_device(struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	uint16_t length = rte_pktmbuf_data_len(m), l3 = 14, type, l3_length;
	uint8_t protocol;
	uint64_t flags;

	if (length < 14)
		return;
	type = frame[12] << 8 | frame[13];
	while ((type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ) && l3 + 4 <= length && l3 < 22) {
		type = frame[l3 + 2] << 8 | frame[l3 + 3];
		l3 += 4;
	}
	if (type == RTE_ETHER_TYPE_IPV4 && l3 + 20 <= length) {
		protocol = frame[l3 + 9];
		l3_length = (frame[l3] & 15) * 4;
		flags = RTE_MBUF_F_TX_IPV4;
	} else if (type == RTE_ETHER_TYPE_IPV6 && l3 + 40 <= length) {
		protocol = frame[l3 + 6];
		l3_length = 40;
		flags = RTE_MBUF_F_TX_IPV6;
	} else {
		return;
	}
	if (protocol == 6)
		flags |= RTE_MBUF_F_TX_TCP_CKSUM;
	else if (protocol == 17)
		flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	else
		return;
	m->l2_len = l3;
	m->l3_len = l3_length;
	m->ol_flags = flags;
}

uint16_t sluice_transmit(uint16_t port, uint16_t queue, int offload, struct rte_mbuf **buffers,
		const struct sluice_window *windows, uint16_t count)
{
	uint16_t i;

	/* Without windows, the mbufs describe their frames as they are. */
	for (i = 0; windows != NULL && i < count; i++) {
		settle(buffers[i], &windows[i]);
		if (unlikely(offload && windows[i].checksums == SLUICE_CHECKSUMS_LEFT))
			leave_to_device(buffers[i]);
	}
	return rte_eth_tx_burst(port, queue, buffers, count);
}

void sluice_transmit_nothing(uint16_t port, uint16_t queue)
{
	rte_eth_tx_burst(port, queue, NULL, 0);
}

/* Burst buffers contain only single-segment, direct, unshared mbufs: return them unchanged to their pools. */
void sluice_free(struct rte_mbuf **buffers, uint32_t count)
{
	uint32_t from, to;

	for (from = 0; from < count; from = to) {
		struct rte_mempool *pool = buffers[from]->pool;

		if (unlikely(rte_mbuf_refcnt_read(buffers[from]) != 1 || buffers[from]->nb_segs != 1 ||
			     !RTE_MBUF_DIRECT(buffers[from]))) {
			rte_pktmbuf_free(buffers[from]);
			to = from + 1;
			continue;
		}
		for (to = from + 1; to < count; to++) {
			const struct rte_mbuf *m = buffers[to];

			if (m->pool != pool || rte_mbuf_refcnt_read(m) != 1 || m->nb_segs != 1 || !RTE_MBUF_DIRECT(m))
				break;
		}
		rte_mempool_put_bulk(pool, (void *const *)&buffers[from], to - from);
	}
}

uint16_t sluice_allocate(struct rte_mempool *pool, struct rte_mbuf **buffers, struct sluice_room *rooms,
		struct sluice_window *windows, uint16_t count)
{
	uint16_t i;

	if (rte_mempool_get_bulk(pool, (void **)buffers, count) != 0)
		return 0;
	for (i = 0; i < count; i++)
		rte_prefetch0(buffers[i]);
	for (i = 0; i < count; i++) {
		rte_pktmbuf_reset(buffers[i]);
		look(buffers[i], &rooms[i], &windows[i]);
		windows[i].checksums = SLUICE_CHECKSUMS_UNVERIFIED;
		windows[i].changed = 1;
	}
	return count;
}

uint32_t sluice_ring_drain(struct rte_ring *ring)
{
	struct rte_mbuf *buffers[SLUICE_BURST];
	uint32_t i, n, drained = 0;

	while ((n = rte_ring_dequeue_burst(ring, (void **)buffers, SLUICE_BURST, NULL)) != 0) {
		for (i = 0; i < n; i++)
			rte_pktmbuf_free(buffers[i]);
		drained += n;
	}
	return drained;
}
