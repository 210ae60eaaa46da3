/* Distribution of frames over a device's queues: by a hash of fields, and a redirection table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>

#include "shim.h"

static const struct {
	uint32_t ours;
	uint64_t theirs;
} functions[] = {
	{SLUICE_HASH_IPV4, RTE_ETH_RSS_IPV4},
	{SLUICE_HASH_IPV4_FRAGMENT, RTE_ETH_RSS_FRAG_IPV4},
	{SLUICE_HASH_IPV4_TCP, RTE_ETH_RSS_NONFRAG_IPV4_TCP},
	{SLUICE_HASH_IPV4_UDP, RTE_ETH_RSS_NONFRAG_IPV4_UDP},
	{SLUICE_HASH_IPV4_OTHER, RTE_ETH_RSS_NONFRAG_IPV4_OTHER},
	{SLUICE_HASH_IPV6, RTE_ETH_RSS_IPV6},
	{SLUICE_HASH_IPV6_FRAGMENT, RTE_ETH_RSS_FRAG_IPV6},
	{SLUICE_HASH_IPV6_TCP, RTE_ETH_RSS_NONFRAG_IPV6_TCP},
	{SLUICE_HASH_IPV6_UDP, RTE_ETH_RSS_NONFRAG_IPV6_UDP},
	{SLUICE_HASH_IPV6_OTHER, RTE_ETH_RSS_NONFRAG_IPV6_OTHER},
	{SLUICE_HASH_L3_SOURCE_ONLY, RTE_ETH_RSS_L3_SRC_ONLY},
	{SLUICE_HASH_L3_DESTINATION_ONLY, RTE_ETH_RSS_L3_DST_ONLY},
	{SLUICE_HASH_L4_SOURCE_ONLY, RTE_ETH_RSS_L4_SRC_ONLY},
	{SLUICE_HASH_L4_DESTINATION_ONLY, RTE_ETH_RSS_L4_DST_ONLY},
};

uint64_t sluice_hash_functions(uint32_t ours)
{
	uint64_t theirs = 0;
	size_t i;

	for (i = 0; i < RTE_DIM(functions); i++)
		if ((ours & functions[i].ours) != 0)
			theirs |= functions[i].theirs;
	return theirs;
}

static uint32_t read_functions(uint64_t theirs)
{
	uint32_t ours = 0;
	size_t i;

	for (i = 0; i < RTE_DIM(functions); i++) {
		if ((theirs & functions[i].theirs) != 0)
			ours |= functions[i].ours;
		theirs &= ~functions[i].theirs;
	}
	return theirs == 0 ? ours : ours | SLUICE_HASH_BEYOND;
}

int sluice_hash_capabilities(uint16_t port, struct sluice_hash_capabilities *capabilities)
{
	struct rte_eth_dev_info device;
	int rc = rte_eth_dev_info_get(port, &device);

	if (rc != 0)
		return rc;
	capabilities->functions = read_functions(device.flow_type_rss_offloads);
	capabilities->key_bytes = device.hash_key_size;
	capabilities->table_entries = device.reta_size;
	capabilities->queues = device.max_rx_queues;
	capabilities->delivers = (device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH) != 0;
	return 0;
}

int sluice_hash_set(uint16_t port, uint32_t ours, const uint8_t *key, uint8_t key_bytes)
{
	struct rte_eth_rss_conf configuration = {0};

	configuration.rss_hf = sluice_hash_functions(ours);
	configuration.rss_key = (uint8_t *)(uintptr_t)key;
	configuration.rss_key_len = key == NULL ? 0 : key_bytes;
	return rte_eth_dev_rss_hash_update(port, &configuration);
}

int sluice_hash_get(uint16_t port, uint8_t key_bytes, struct sluice_hash *hash)
{
	struct rte_eth_rss_conf configuration = {0};
	struct rte_eth_conf started;
	int rc;

	memset(hash, 0, sizeof(*hash));
	configuration.rss_key = hash->key;
	configuration.rss_key_len = key_bytes;
	rc = rte_eth_dev_rss_hash_conf_get(port, &configuration);
	if (rc != 0)
		return rc;
	hash->functions = read_functions(configuration.rss_hf);
	hash->key_bytes = RTE_MIN(configuration.rss_key_len, key_bytes);
	if (rte_eth_dev_conf_get(port, &started) == 0)
		hash->delivers = (started.rxmode.offloads & RTE_ETH_RX_OFFLOAD_RSS_HASH) != 0;
	return 0;
}

/* Allocates RETA groups with the first `entries` entries selected; the caller frees them. */
static struct rte_eth_rss_reta_entry64 *groups_for(uint16_t entries)
{
	size_t count = (entries + RTE_ETH_RETA_GROUP_SIZE - 1) / RTE_ETH_RETA_GROUP_SIZE;
	struct rte_eth_rss_reta_entry64 *groups = calloc(count, sizeof(*groups));
	uint16_t entry;

	for (entry = 0; groups != NULL && entry < entries; entry++)
		groups[entry / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << entry % RTE_ETH_RETA_GROUP_SIZE;
	return groups;
}

int sluice_hash_set_table(uint16_t port, const uint16_t *queues, uint16_t entries)
{
	struct rte_eth_rss_reta_entry64 *groups = groups_for(entries);
	uint16_t entry;
	int rc;

	if (groups == NULL)
		return -ENOMEM;
	for (entry = 0; entry < entries; entry++)
		groups[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE] = queues[entry];
	rc = rte_eth_dev_rss_reta_update(port, groups, entries);
	free(groups);
	return rc;
}

int sluice_hash_table(uint16_t port, uint16_t *queues, uint16_t entries)
{
	struct rte_eth_rss_reta_entry64 *groups = groups_for(entries);
	uint16_t entry;
	int rc;

	if (groups == NULL)
		return -ENOMEM;
	rc = rte_eth_dev_rss_reta_query(port, groups, entries);
	for (entry = 0; entry < entries; entry++)
		queues[entry] = groups[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE];
	free(groups);
	return rc;
}
