/* For tests: frames with properties that drivers may deliver. */
#include <errno.h>
#include <string.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "shim.h"

int sluice_inject(struct rte_mempool *pool, struct rte_ring *ring, int kind, const uint8_t *bytes, uint16_t length,
		struct rte_mbuf **injected)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool), *second = NULL;
	char *room;

	if (m == NULL)
		return -ENOMEM;
	room = rte_pktmbuf_append(m, length);
	if (room == NULL) {
		rte_pktmbuf_free(m);
		return -EMSGSIZE;
	}
	memcpy(room, bytes, length);
	switch (kind) {
	case SLUICE_INJECT_SHARED:
		rte_mbuf_refcnt_update(m, 1);
		break;
	case SLUICE_INJECT_SEGMENTS:
		second = rte_pktmbuf_alloc(pool);
		room = second == NULL ? NULL : rte_pktmbuf_append(second, length);
		if (room == NULL) {
			rte_pktmbuf_free(second);
			rte_pktmbuf_free(m);
			return -ENOMEM;
		}
		memcpy(room, bytes, length);
		rte_pktmbuf_chain(m, second);
		break;
	case SLUICE_INJECT_TAG:
		m->vlan_tci = 0x2007;
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
		break;
	case SLUICE_INJECT_TAGS:
		m->vlan_tci = 7;
		m->vlan_tci_outer = 9;
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_RX_QINQ |
			RTE_MBUF_F_RX_QINQ_STRIPPED;
		break;
	case SLUICE_INJECT_KEPT_TAG:
		m->vlan_tci = 7;
		m->ol_flags |= RTE_MBUF_F_RX_VLAN;
		break;
	case SLUICE_INJECT_GOOD:
		m->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
		break;
	case SLUICE_INJECT_BAD_L3:
		m->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_BAD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
		break;
	case SLUICE_INJECT_BAD_L4:
		m->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_BAD;
		break;
	case SLUICE_INJECT_LEFT:
		m->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_NONE;
		break;
	default:
		break;
	}
	if (rte_ring_enqueue(ring, m) != 0) {
		rte_pktmbuf_free(m);
		return -ENOBUFS;
	}
	*injected = m;
	return 0;
}
