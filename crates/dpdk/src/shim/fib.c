/* rte_fib: IPv4 routes in DIR-24-8, for benchmarks. */
#include <errno.h>

#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_memory.h>
#include <rte_vect.h>

#include "shim.h"

int sluice_fib_create(const char *name, uint32_t routes, uint32_t groups, uint32_t none, struct rte_fib **fib)
{
	struct rte_fib_conf configuration = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = none,
		.max_routes = (int)routes,
		.dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_4B, .num_tbl8 = groups},
	};
	const uint16_t width = rte_vect_get_max_simd_bitwidth();
	struct rte_fib *made = rte_fib_create(name, SOCKET_ID_ANY, &configuration);

	if (made == NULL)
		return -rte_errno;
	/* rte_fib reads the SIMD width only when the lookup function is selected. The width is restored below, so that
	 * drivers are not affected. */
	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	rte_fib_select_lookup(made, RTE_FIB_LOOKUP_DEFAULT);
	rte_vect_set_max_simd_bitwidth(width);
	*fib = made;
	return 0;
}

int sluice_fib_add(struct rte_fib *fib, uint32_t address, uint8_t length, uint32_t value)
{
	return rte_fib_add(fib, address, length, value);
}

int sluice_fib_lookup(struct rte_fib *fib, uint32_t *addresses, uint64_t *values, uint32_t count)
{
	return rte_fib_lookup_bulk(fib, addresses, values, (int)count);
}

void sluice_fib_free(struct rte_fib *fib)
{
	rte_fib_free(fib);
}
