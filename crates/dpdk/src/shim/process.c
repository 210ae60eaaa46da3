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
#include <rte_mempool.h>
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

/* One chunk, objects packed without regard to page borders: AF_XDP's UMEM covers size times objects and no
 * more, and a pool that leaves the rest of each page free reaches beyond it. Where addresses are physical the
 * borders count. */
int sluice_pool_create(const char *name, uint32_t count, uint32_t cache, uint16_t room,
		struct rte_mempool **pool, uint32_t *chunks)
{
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = room,
	};
	unsigned int flags = rte_eal_iova_mode() == RTE_IOVA_PA && rte_eal_has_hugepages() ?
		0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	struct rte_mempool *made;
	int rc;

	made = rte_mempool_create_empty(name, count, sizeof(struct rte_mbuf) + room, cache,
			sizeof(private), SOCKET_ID_ANY, flags);
	if (made == NULL)
		return -rte_errno;
	rc = rte_mempool_set_ops_byname(made, "ring_mp_mc", NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(made, &private);
		rc = rte_mempool_populate_default(made);
	}
	if (rc < 0) {
		rte_mempool_free(made);
		return rc;
	}
	rte_mempool_obj_iter(made, rte_pktmbuf_init, NULL);
	*chunks = made->nb_mem_chunks;
	*pool = made;
	return 0;
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
