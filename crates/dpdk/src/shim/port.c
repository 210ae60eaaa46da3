/* Ports and devices. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eth_bond.h>
#include <rte_eth_ring.h>
#include <rte_epoll.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_errno.h>
#include <rte_version.h>

#include "shim.h"

int sluice_device_probe(const char *arguments)
{
	return rte_dev_probe(arguments);
}

int sluice_port_by_name(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

#define L4_RECEIVE (RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM)
#define L4_TRANSMIT (RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM)

int sluice_port_info(uint16_t port, struct sluice_port_info *info)
{
	struct rte_eth_dev_info device;
	int rc = rte_eth_dev_info_get(port, &device);

	if (rc != 0)
		return rc;
	memset(info, 0, sizeof(*info));
	snprintf(info->driver, sizeof(info->driver), "%s", device.driver_name == NULL ? "" : device.driver_name);
	info->receive_queues = device.max_rx_queues;
	info->transmit_queues = device.max_tx_queues;
	info->minimum_mtu = device.min_mtu;
	info->maximum_mtu = device.max_mtu;
	info->receive_checksums = (device.rx_offload_capa & L4_RECEIVE) != 0;
	info->transmit_checksums = (device.tx_offload_capa & L4_TRANSMIT) == L4_TRANSMIT;
	info->node = rte_eth_dev_socket_id(port);
	return 0;
}

int sluice_port_configure(uint16_t port, const struct sluice_port_settings *settings, int *step)
{
	struct rte_eth_conf configuration = {0};
	struct rte_eth_dev_info device;
	uint16_t receive = settings->descriptors, transmit = settings->descriptors, queue;
	int node, rc;

	*step = SLUICE_STEP_INFO;
	rc = rte_eth_dev_info_get(port, &device);
	if (rc != 0)
		return rc;
	node = rte_eth_dev_socket_id(port);

	configuration.rxmode.offloads = device.rx_offload_capa & (L4_RECEIVE | RTE_ETH_RX_OFFLOAD_IPV4_CKSUM);
	configuration.txmode.offloads = device.tx_offload_capa & L4_TRANSMIT;
	configuration.rxmode.mtu = settings->set_mtu ? settings->mtu : 0;
	if (settings->hash_functions != 0) {
		configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		configuration.rxmode.offloads |= device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH;
		configuration.rx_adv_conf.rss_conf.rss_hf = sluice_hash_functions(settings->hash_functions);
		if (settings->hash_key != NULL) {
			configuration.rx_adv_conf.rss_conf.rss_key = (uint8_t *)(uintptr_t)settings->hash_key;
			configuration.rx_adv_conf.rss_conf.rss_key_len = settings->hash_key_bytes;
		}
	}
	/* virtio may filter by VLAN without being asked to. Enable the filter so that it can be configured to accept
	 * all VLANs. */
	if (device.driver_name != NULL && strcmp(device.driver_name, "net_virtio") == 0)
		configuration.rxmode.offloads |= device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
	/* A bond polls the links of its members and updates its own link state. Without this flag, each query of the
	 * bond's state would read the members' links from a different thread, and drivers don't support that. */
	configuration.intr_conf.lsc = device.driver_name != NULL && strcmp(device.driver_name, "net_bonding") == 0;
	configuration.intr_conf.rxq = settings->interrupts != 0;
	*step = SLUICE_STEP_CONFIGURE;
	rc = rte_eth_dev_configure(port, settings->receive_queues, settings->transmit_queues, &configuration);
	if (rc != 0)
		return rc;
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit);
	if (rc != 0)
		return rc;
	*step = SLUICE_STEP_RECEIVE_QUEUE;
	for (queue = 0; queue < settings->receive_queues; queue++) {
		struct rte_eth_rxconf receive_configuration = device.default_rxconf;

		receive_configuration.offloads = configuration.rxmode.offloads;
		rc = rte_eth_rx_queue_setup(port, queue, receive, node, &receive_configuration, settings->pool);
		if (rc != 0)
			return rc;
	}
	*step = SLUICE_STEP_TRANSMIT_QUEUE;
	for (queue = 0; queue < settings->transmit_queues; queue++) {
		struct rte_eth_txconf transmit_configuration = device.default_txconf;

		transmit_configuration.offloads = configuration.txmode.offloads;
		rc = rte_eth_tx_queue_setup(port, queue, transmit, node, &transmit_configuration);
		if (rc != 0)
			return rc;
	}
	*step = SLUICE_STEP_MTU;
	if (settings->set_mtu) {
		uint16_t mtu = 0;

		rc = rte_eth_dev_set_mtu(port, settings->mtu);
		/* Some drivers don't support this call; then the MTU only has to equal the requested one. */
		if (rc == -ENOTSUP && rte_eth_dev_get_mtu(port, &mtu) == 0)
			rc = 0;
	}
	return rc;
}

int sluice_port_start(uint16_t port)
{
	int rc = rte_eth_dev_start(port), vlan;

	if (rc == 0 && (rte_eth_dev_get_vlan_offload(port) & RTE_ETH_VLAN_FILTER_OFFLOAD))
		for (vlan = 0; vlan <= RTE_ETHER_MAX_VLAN_ID && rc == 0; vlan++)
			rc = rte_eth_dev_vlan_filter(port, (uint16_t)vlan, 1);
	return rc;
}

/* Whether each receive queue of the port has a file descriptor that signals received frames. */
int sluice_interrupts(uint16_t port)
{
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, 0) >= 0;
}

int sluice_interrupt_arm(struct sluice_queue queue)
{
	return rte_eth_dev_rx_intr_ctl_q(queue.port, queue.queue, RTE_EPOLL_PER_THREAD, RTE_INTR_EVENT_ADD, NULL);
}

/* Returns the number of queues that signalled frames before the timeout. */
int sluice_interrupt_wait(const struct sluice_queue *queues, uint16_t count, int milliseconds)
{
	struct rte_epoll_event events[SLUICE_BURST];
	uint16_t i;
	int rang;

	/* Drivers that don't support this call signal frames on their descriptors anyway. */
	for (i = 0; i < count; i++)
		rte_eth_dev_rx_intr_enable(queues[i].port, queues[i].queue);
	rang = rte_epoll_wait(RTE_EPOLL_PER_THREAD, events, SLUICE_BURST, milliseconds);
	for (i = 0; i < count; i++)
		rte_eth_dev_rx_intr_disable(queues[i].port, queues[i].queue);
	return rang;
}

int sluice_port_stop(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

/* Whether another port uses the same device, as on cards with one PCI address for two ports. */
static int is_shared(uint16_t port, const struct rte_device *device)
{
	struct rte_eth_dev_info info;
	uint16_t other;

	RTE_ETH_FOREACH_DEV(other)
		if (other != port && rte_eth_dev_info_get(other, &info) == 0 && info.device == device)
			return 1;
	return 0;
}

int sluice_port_close(uint16_t port, int detach)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info), closed, shared = 0;
	struct rte_device *device = rc == 0 ? info.device : NULL;

	if (detach && device != NULL)
		shared = is_shared(port, device);
	closed = rte_eth_dev_close(port);
	if (detach && device != NULL && !shared)
		rc = rte_dev_remove(device);
	return closed != 0 ? closed : rc;
}

static void (*removal_told)(const char *name);

static void on_removal(const char *name, enum rte_dev_event_type event, void *argument)
{
	(void)argument;
	if (event == RTE_DEV_EVENT_REMOVE && name != NULL)
		removal_told(name);
}

/* Reports VFIO's removal requests, which DPDK delivers in its interrupt thread. Makes accesses to a card that UIO has
 * lost harmless. */
int sluice_watch_removal(void (*told)(const char *name))
{
	int rc;

	removal_told = told;
	rc = rte_dev_event_callback_register(NULL, on_removal, NULL);
	return rc != 0 ? rc : rte_dev_hotplug_handle_enable();
}

int sluice_port_promiscuous(uint16_t port, int on)
{
	return on ? rte_eth_promiscuous_enable(port) : rte_eth_promiscuous_disable(port);
}

int sluice_port_all_multicast(uint16_t port, int on)
{
	return on ? rte_eth_allmulticast_enable(port) : rte_eth_allmulticast_disable(port);
}

int sluice_port_mac(uint16_t port, uint8_t mac[6])
{
	struct rte_ether_addr address;
	int rc = rte_eth_macaddr_get(port, &address);

	memcpy(mac, address.addr_bytes, 6);
	return rc;
}

int sluice_port_set_mac(uint16_t port, const uint8_t mac[6])
{
	struct rte_ether_addr address;

	memcpy(address.addr_bytes, mac, 6);
	return rte_eth_dev_default_mac_addr_set(port, &address);
}

int sluice_port_mtu(uint16_t port, uint16_t *mtu)
{
	return rte_eth_dev_get_mtu(port, mtu);
}

int sluice_port_set_link(uint16_t port, int up)
{
	return up ? rte_eth_dev_set_link_up(port) : rte_eth_dev_set_link_down(port);
}

int sluice_port_link(uint16_t port, int *up, uint32_t *megabits)
{
	struct rte_eth_link link = {0};
	int rc = rte_eth_link_get_nowait(port, &link);

	*up = link.link_status == RTE_ETH_LINK_UP;
	*megabits = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
	return rc;
}

int sluice_port_statistics(uint16_t port, struct sluice_port_statistics *statistics)
{
	struct rte_eth_stats s;
	int rc = rte_eth_stats_get(port, &s);

	if (rc != 0)
		return rc;
	*statistics = (struct sluice_port_statistics){
		.received = s.ipackets, .sent = s.opackets, .received_bytes = s.ibytes, .sent_bytes = s.obytes,
		.missed = s.imissed, .receive_errors = s.ierrors, .transmit_errors = s.oerrors,
		.no_buffer = s.rx_nombuf,
	};
	return 0;
}

int sluice_port_from_rings(const char *name, struct rte_ring **receive, struct rte_ring **transmit, uint16_t queues)
{
	int port = rte_eth_from_rings(name, receive, queues, transmit, queues, 0);

	return port < 0 ? -rte_errno : port;
}

int sluice_bond_active(uint16_t port, uint16_t *members, uint16_t room)
{
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	return rte_eth_bond_active_members_get(port, members, room);
#else
	return rte_eth_bond_active_slaves_get(port, members, room);
#endif
}

/* Makes a bond that adds this port poll its link. A bond uses link interrupts if the driver claims to support them,
 * but the driver of QEMU's e1000e receives none with MSI-X under VFIO. The flags in the device information are the
 * port's own and can be changed. */
int sluice_bond_poll_link(uint16_t member)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(member, &info);

	if (rc == 0)
		*(uint32_t *)(uintptr_t)info.dev_flags &= ~(uint32_t)RTE_ETH_DEV_INTR_LSC;
	return rc;
}

int sluice_bond_look_every(uint16_t port, uint32_t milliseconds)
{
	return rte_eth_bond_link_monitoring_set(port, milliseconds);
}

int sluice_bond_add(uint16_t port, uint16_t member)
{
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	return rte_eth_bond_member_add(port, member);
#else
	return rte_eth_bond_slave_add(port, member);
#endif
}

int sluice_bond_remove(uint16_t port, uint16_t member)
{
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	return rte_eth_bond_member_remove(port, member);
#else
	return rte_eth_bond_slave_remove(port, member);
#endif
}

const char *sluice_bond_member_argument(void)
{
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	return "member";
#else
	return "slave";
#endif
}
