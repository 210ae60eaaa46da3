/* Interface to DPDK: one call per burst for frames, plain calls for control. It includes no DPDK header, so that the
 * bindings do not depend on layouts that change between releases. Every call that can fail returns 0 or a negative
 * errno. */
#ifndef SLUICE_SHIM_H
#define SLUICE_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_acl_ctx;
struct rte_fib;
struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

/* Checksum state of a frame; in the order of sluice_wire::Checksums. */
#define SLUICE_CHECKSUMS_UNVERIFIED 0
#define SLUICE_CHECKSUMS_VOUCHED 1
#define SLUICE_CHECKSUMS_BAD_L3 2
#define SLUICE_CHECKSUMS_BAD_L4 3
#define SLUICE_CHECKSUMS_LEFT 4

/* Why a received buffer can't be used. */
#define SLUICE_FAULT_NONE 0
#define SLUICE_FAULT_TOO_LONG 1
#define SLUICE_FAULT_SHARED 2
#define SLUICE_FAULT_LENGTH 3

/* Maximum number of frames per receive call: the fault mask has one bit for each. */
#define SLUICE_BURST 64

/* Offset of a buffer's memory from its mbuf: directly after the mbuf struct. */
#define SLUICE_ROOM 128

/* Memory of a buffer. */
struct sluice_room {
	uint8_t *start;
	uint16_t length;
	uint16_t fault; /* SLUICE_FAULT_… */
};

/* Position of a frame in its buffer. */
struct sluice_window {
	uint16_t start;
	uint16_t length;
	uint8_t checksums; /* SLUICE_CHECKSUMS_… */
	uint8_t changed;   /* whether the mbuf must be updated before the frame is sent */
} __attribute__((aligned(8)));

/* burst.c: frames */
uint16_t sluice_receive(uint16_t port, uint16_t queue, struct rte_mbuf **buffers, struct sluice_room *rooms,
		struct sluice_window *windows, uint16_t count, uint64_t *faults);
uint16_t sluice_transmit(uint16_t port, uint16_t queue, int offload, struct rte_mbuf **buffers,
		const struct sluice_window *windows, uint16_t count);
void sluice_transmit_nothing(uint16_t port, uint16_t queue);
void sluice_free(struct rte_mbuf **buffers, uint32_t count);
uint16_t sluice_allocate(struct rte_mempool *pool, struct rte_mbuf **buffers, struct sluice_room *rooms,
		struct sluice_window *windows, uint16_t count);
uint32_t sluice_ring_drain(struct rte_ring *ring);

/* process.c: EAL, pools, rings */
int sluice_eal_start(int argc, char **argv);
/* Allows this thread, and threads that it creates afterwards, to access I/O ports. */
int sluice_io_ports(void);
const char *sluice_version(void);
int sluice_log_open(void (*write)(const char *text, size_t length));
int sluice_thread_register(void);
void sluice_thread_unregister(void);
/* Bytes of an object of an adjoining pool with physical addresses, including headers. */
#define SLUICE_ADJOINING_OBJECT 4096
int sluice_pool_create(const char *name, uint32_t count, uint32_t cache, uint16_t room, int adjoining,
		struct rte_mempool **pool, uint32_t *pieces);
uint32_t sluice_pool_misaddressed(const struct rte_mempool *pool);
uint32_t sluice_pool_available(const struct rte_mempool *pool);
void sluice_pool_destroy(struct rte_mempool *pool);
int sluice_ring_create(const char *name, uint32_t count, struct rte_ring **ring);
uint32_t sluice_ring_count(const struct rte_ring *ring);
void sluice_ring_destroy(struct rte_ring *ring);

/* inject.c: puts a frame with special driver properties into a ring; for tests */
#define SLUICE_INJECT_PLAIN 0
#define SLUICE_INJECT_SHARED 1
#define SLUICE_INJECT_SEGMENTS 2
#define SLUICE_INJECT_TAG 3
#define SLUICE_INJECT_TAGS 4
#define SLUICE_INJECT_KEPT_TAG 5
#define SLUICE_INJECT_GOOD 6
#define SLUICE_INJECT_BAD_L3 7
#define SLUICE_INJECT_BAD_L4 8
#define SLUICE_INJECT_LEFT 9
int sluice_inject(struct rte_mempool *pool, struct rte_ring *ring, int kind, const uint8_t *bytes, uint16_t length,
		struct rte_mbuf **injected);

/* port.c: devices */
#define SLUICE_DRIVER_NAME 32
struct sluice_port_info {
	char driver[SLUICE_DRIVER_NAME];
	uint16_t receive_queues;
	uint16_t transmit_queues;
	uint16_t minimum_mtu;
	uint16_t maximum_mtu;
	int receive_checksums;
	int transmit_checksums;
	int node;
};

struct sluice_port_settings {
	uint16_t receive_queues;
	uint16_t transmit_queues;
	uint16_t descriptors; /* requested; reduced to the device's maximum */
	uint16_t mtu;
	int set_mtu;
	uint32_t hash_functions; /* SLUICE_HASH_…, only offered ones; 0: no hash */
	const uint8_t *hash_key; /* NULL: the driver's key */
	uint8_t hash_key_bytes;
	int interrupts; /* receive interrupts, if the driver supports them */
	struct rte_mempool *pool;
};

/* Steps of sluice_port_configure, for error messages. */
#define SLUICE_STEP_INFO 0
#define SLUICE_STEP_CONFIGURE 1
#define SLUICE_STEP_RECEIVE_QUEUE 2
#define SLUICE_STEP_TRANSMIT_QUEUE 3
#define SLUICE_STEP_MTU 4

struct sluice_port_statistics {
	uint64_t received, sent, received_bytes, sent_bytes, missed, receive_errors, transmit_errors, no_buffer;
};

int sluice_device_probe(const char *arguments);
int sluice_port_by_name(const char *name, uint16_t *port);
int sluice_port_info(uint16_t port, struct sluice_port_info *info);
int sluice_port_configure(uint16_t port, const struct sluice_port_settings *settings, int *step);
int sluice_port_start(uint16_t port);
int sluice_port_stop(uint16_t port);
int sluice_port_close(uint16_t port, int detach);
int sluice_watch_removal(void (*told)(const char *name));
int sluice_port_promiscuous(uint16_t port, int on);
int sluice_port_all_multicast(uint16_t port, int on);
int sluice_port_mac(uint16_t port, uint8_t mac[6]);
int sluice_port_set_mac(uint16_t port, const uint8_t mac[6]);
int sluice_port_mtu(uint16_t port, uint16_t *mtu);
/* Link state (0 or 1), and speed in megabits per second (0 if unknown). */
int sluice_port_link(uint16_t port, int *up, uint32_t *megabits);
int sluice_port_set_link(uint16_t port, int up);
int sluice_port_statistics(uint16_t port, struct sluice_port_statistics *statistics);
int sluice_port_from_rings(const char *name, struct rte_ring **receive, struct rte_ring **transmit, uint16_t queues);
/* Receive interrupts: a thread arms its queues once, and then waits for any of them. */
struct sluice_queue {
	uint16_t port, queue;
};
int sluice_interrupts(uint16_t port);
int sluice_interrupt_arm(struct sluice_queue queue);
int sluice_interrupt_wait(const struct sluice_queue *queues, uint16_t count, int milliseconds);
int sluice_bond_active(uint16_t port, uint16_t *members, uint16_t room);
int sluice_bond_add(uint16_t port, uint16_t member);
int sluice_bond_poll_link(uint16_t member);
int sluice_bond_look_every(uint16_t port, uint32_t milliseconds);
int sluice_bond_remove(uint16_t port, uint16_t member);
const char *sluice_bond_member_argument(void);
const char *sluice_error_text(int error);

/* steering.c: the RSS hash that selects queues */
#define SLUICE_HASH_IPV4 (1u << 0)
#define SLUICE_HASH_IPV4_FRAGMENT (1u << 1)
#define SLUICE_HASH_IPV4_TCP (1u << 2)
#define SLUICE_HASH_IPV4_UDP (1u << 3)
#define SLUICE_HASH_IPV4_OTHER (1u << 4)
#define SLUICE_HASH_IPV6 (1u << 5)
#define SLUICE_HASH_IPV6_FRAGMENT (1u << 6)
#define SLUICE_HASH_IPV6_TCP (1u << 7)
#define SLUICE_HASH_IPV6_UDP (1u << 8)
#define SLUICE_HASH_IPV6_OTHER (1u << 9)
#define SLUICE_HASH_L3_SOURCE_ONLY (1u << 10)
#define SLUICE_HASH_L3_DESTINATION_ONLY (1u << 11)
#define SLUICE_HASH_L4_SOURCE_ONLY (1u << 12)
#define SLUICE_HASH_L4_DESTINATION_ONLY (1u << 13)
#define SLUICE_HASH_BEYOND (1u << 31) /* functions without a constant here; never set */

#define SLUICE_HASH_KEY 255

struct sluice_hash_capabilities {
	uint32_t functions; /* SLUICE_HASH_… */
	uint8_t key_bytes; /* 0 if not reported: 40 by convention */
	uint16_t table_entries;
	uint16_t queues;
	int delivers; /* whether the hash is delivered with the frame */
};

struct sluice_hash {
	uint32_t functions;
	uint8_t key[SLUICE_HASH_KEY];
	uint8_t key_bytes;
	int delivers;
};

uint64_t sluice_hash_functions(uint32_t ours);
int sluice_hash_capabilities(uint16_t port, struct sluice_hash_capabilities *capabilities);
/* If key is NULL, the device keeps its key. */
int sluice_hash_set(uint16_t port, uint32_t ours, const uint8_t *key, uint8_t key_bytes);
int sluice_hash_get(uint16_t port, uint8_t key_bytes, struct sluice_hash *hash);
int sluice_hash_set_table(uint16_t port, const uint16_t *queues, uint16_t entries);
int sluice_hash_table(uint16_t port, uint16_t *queues, uint16_t entries);

/* Bytes in use on DPDK's heap. */
size_t sluice_heap_bytes(void);

/* fib.c: rte_fib, IPv4, for benchmarks. Addresses are in host byte order. */
int sluice_fib_create(const char *name, uint32_t routes, uint32_t groups, uint32_t none, struct rte_fib **fib);
int sluice_fib_add(struct rte_fib *fib, uint32_t address, uint8_t length, uint32_t value);
int sluice_fib_lookup(struct rte_fib *fib, uint32_t *addresses, uint64_t *values, uint32_t count);
void sluice_fib_free(struct rte_fib *fib);

/* acl.c: rte_acl, for benchmarks */
struct sluice_acl_rule {
	uint32_t source, destination; /* host byte order, host bits 0 */
	uint16_t source_first, source_last, destination_first, destination_last;
	uint8_t source_length, destination_length;
	uint8_t protocol, protocol_mask;
};

/* Key of a packet to classify, in network byte order. */
struct sluice_acl_key {
	uint8_t protocol;
	uint8_t unused[3];
	uint8_t source[4], destination[4];
	uint8_t source_port[2], destination_port[2];
};

int sluice_acl_build(const char *name, const struct sluice_acl_rule *rules, uint32_t count,
		struct rte_acl_ctx **acl, int *algorithm, size_t *bytes);
/* Writes the number of the first matching rule, starting at 1, or 0 if none matches. */
int sluice_acl_classify(const struct rte_acl_ctx *acl, const uint8_t **keys, uint32_t *found, uint32_t count);
const char *sluice_acl_algorithm_name(int algorithm);
void sluice_acl_free(struct rte_acl_ctx *acl);

#endif
