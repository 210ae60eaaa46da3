/* EAL, log, pools, rings, memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_ring.h>
#include <rte_version.h>

#include "shim.h"

static void (*log_write)(const char *text, size_t length);

static ssize_t log_cookie_write(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	log_write(text, length);
	return (ssize_t)length;
}

int sluice_log_open(void (*write)(const char *text, size_t length))
{
	cookie_io_functions_t functions = {.write = log_cookie_write};
	FILE *stream;

	log_write = write;
	stream = fopencookie(NULL, "w", functions);
	if (stream == NULL)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, 1024);
	return rte_openlog_stream(stream);
}

int sluice_eal_start(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

int sluice_io_ports(void)
{
	return rte_eal_iopl_init();
}

const char *sluice_version(void)
{
	return rte_version();
}

const char *sluice_error_text(int error)
{
	return rte_strerror(error < 0 ? -error : error);
}

int sluice_thread_register(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void sluice_thread_unregister(void)
{
	rte_thread_unregister();
}

static void release_zone(struct rte_mempool_memhdr *chunk, void *zone)
{
	(void)chunk;
	rte_memzone_free(zone);
}

/* Populates a pool for virtual DMA addresses with one memory zone, in which objects may cross page borders. The DMA
 * address of each object is its virtual address. */
static int populate_packed(struct rte_mempool *pool, const char *name)
{
	size_t bytes = (size_t)pool->size * (pool->header_size + pool->elt_size + pool->trailer_size);
	const struct rte_memzone *zone;
	char zone_name[RTE_MEMZONE_NAMESIZE];
	int rc;

	snprintf(zone_name, sizeof(zone_name), "%s_zone", name);
	zone = rte_memzone_reserve_aligned(zone_name, bytes, SOCKET_ID_ANY, RTE_MEMZONE_IOVA_CONTIG, RTE_MEMPOOL_ALIGN);
	if (zone == NULL)
		return -rte_errno;
	rc = rte_mempool_populate_iova(pool, zone->addr, zone->iova, zone->len, release_zone,
			(void *)(uintptr_t)zone);
	if (rc < 0)
		rte_memzone_free(zone);
	return rc;
}

/* Number of contiguous pieces of which the memory of the pool consists. */
static uint32_t separate_pieces(const struct rte_mempool *pool)
{
	const struct rte_mempool_memhdr *chunk, *before = NULL;
	uint32_t pieces = 0;

	STAILQ_FOREACH(chunk, &pool->mem_list, next) {
		pieces += before == NULL || RTE_PTR_ADD(before->addr, before->len) != chunk->addr;
		before = chunk;
	}
	return pieces;
}

/* Creates a pool in which every object contains its DMA address.
 *
 * With virtual addresses (VFIO with an IOMMU, or no card), objects may cross pages. With physical addresses, each
 * object stays within a page, and the pool has as many pieces as the memory. AF_XDP maps a single range, which begins
 * at the first object and has the total size of all objects. A pool for AF_XDP (adjoining) must therefore be
 * contiguous: each object takes one ordinary page, and a larger page holds a whole number of objects. */
int sluice_pool_create(const char *name, uint32_t count, uint32_t cache, uint16_t room, int adjoining,
		struct rte_mempool **pool, uint32_t *pieces)
{
	struct rte_pktmbuf_pool_private private = {0};
	int virtual = rte_eal_iova_mode() == RTE_IOVA_VA;
	unsigned int flags = virtual ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
	struct rte_mempool *made;
	int rc;

	if (adjoining && !virtual) {
		flags = RTE_MEMPOOL_F_NO_SPREAD;
		room = SLUICE_ADJOINING_OBJECT - sizeof(struct rte_mbuf) - sizeof(struct rte_mempool_objhdr);
		room = RTE_ALIGN_FLOOR(room, RTE_MEMPOOL_ALIGN);
	}
	private.mbuf_data_room_size = room;
	made = rte_mempool_create_empty(name, count, sizeof(struct rte_mbuf) + room, cache,
			sizeof(private), SOCKET_ID_ANY, flags);
	if (made == NULL)
		return -rte_errno;
	/* These operations come with a DPDK plug-in. */
	rc = rte_mempool_set_ops_byname(made, "ring_mp_mc", NULL) == 0 ? 0 : -ENOSYS;
	if (rc == 0) {
		rte_pktmbuf_pool_init(made, &private);
		rc = virtual ? populate_packed(made, name) : rte_mempool_populate_default(made);
	}
	if (rc < 0) {
		rte_mempool_free(made);
		return rc;
	}
	rte_mempool_obj_iter(made, rte_pktmbuf_init, NULL);
	*pieces = separate_pieces(made);
	*pool = made;
	return 0;
}

/* Number of objects that a card would not find at the address that they contain. */
uint32_t sluice_pool_misaddressed(const struct rte_mempool *pool)
{
	const struct rte_mempool_objhdr *header;
	uint32_t wrong = 0;

	STAILQ_FOREACH(header, &pool->elt_list, next) {
		const struct rte_mbuf *m = (const void *)(header + 1);
		const char *last = (const char *)m->buf_addr + m->buf_len - 1;

		wrong += header->iova == RTE_BAD_IOVA || header->iova != rte_mem_virt2iova(m) ||
			rte_mbuf_iova_get(m) != rte_mem_virt2iova(m->buf_addr) ||
			rte_mbuf_iova_get(m) + m->buf_len - 1 != rte_mem_virt2iova(last);
	}
	return wrong;
}

uint32_t sluice_pool_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

void sluice_pool_destroy(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

int sluice_ring_create(const char *name, uint32_t count, struct rte_ring **ring)
{
	*ring = rte_ring_create(name, count, SOCKET_ID_ANY,
			RING_F_SC_DEQ | RING_F_EXACT_SZ | RING_F_SP_ENQ);
	return *ring == NULL ? -rte_errno : 0;
}

uint32_t sluice_ring_count(const struct rte_ring *ring)
{
	return rte_ring_count(ring);
}

void sluice_ring_destroy(struct rte_ring *ring)
{
	rte_ring_free(ring);
}

size_t sluice_heap_bytes(void)
{
	struct rte_malloc_socket_stats stats;
	unsigned int socket;
	size_t bytes = 0;

	for (socket = 0; socket < rte_socket_count(); socket++)
		if (rte_malloc_get_socket_stats(rte_socket_id_by_idx(socket), &stats) == 0)
			bytes += stats.heap_allocsz_bytes;
	return bytes;
}
