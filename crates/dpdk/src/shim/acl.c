/* rte_acl over the IPv4 five-tuple, for benchmarks. */
#include <errno.h>
#include <stddef.h>

#include <rte_acl.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <rte_vect.h>

#include "shim.h"

enum { PROTOCOL, SOURCE, DESTINATION, SOURCE_PORT, DESTINATION_PORT, FIELDS };

RTE_ACL_RULE_DEF(five_rule, FIELDS);

#define FIELD(index, kind, bytes, group, member) \
	[index] = { \
		.type = RTE_ACL_FIELD_TYPE_##kind, \
		.size = bytes, \
		.field_index = index, \
		.input_index = group, \
		.offset = offsetof(struct sluice_acl_key, member), \
	}

/* rte_acl requires the first field to be one byte, and further fields to be grouped into four bytes. */
static const struct rte_acl_config config = {
	.num_categories = 1,
	.num_fields = FIELDS,
	.defs = {
		FIELD(PROTOCOL, BITMASK, 1, 0, protocol),
		FIELD(SOURCE, MASK, 4, 1, source),
		FIELD(DESTINATION, MASK, 4, 2, destination),
		FIELD(SOURCE_PORT, RANGE, 2, 3, source_port),
		FIELD(DESTINATION_PORT, RANGE, 2, 3, destination_port),
	},
};

static int add(struct rte_acl_ctx *acl, const struct sluice_acl_rule *rule, uint32_t number)
{
	struct five_rule five = {
		/* A result of 0 means no rule; if several rules match, the one with the highest priority wins. */
		.data = {.category_mask = 1, .priority = RTE_ACL_MAX_PRIORITY - number, .userdata = number + 1},
		.field = {
			[PROTOCOL] = {.value.u8 = rule->protocol, .mask_range.u8 = rule->protocol_mask},
			[SOURCE] = {.value.u32 = rule->source, .mask_range.u32 = rule->source_length},
			[DESTINATION] = {.value.u32 = rule->destination, .mask_range.u32 = rule->destination_length},
			[SOURCE_PORT] = {.value.u16 = rule->source_first, .mask_range.u16 = rule->source_last},
			[DESTINATION_PORT] = {
				.value.u16 = rule->destination_first,
				.mask_range.u16 = rule->destination_last,
			},
		},
	};

	return rte_acl_add_rules(acl, (const struct rte_acl_rule *)&five, 1);
}

static int choose(struct rte_acl_ctx *acl)
{
	static const int algorithms[] = {
		RTE_ACL_CLASSIFY_AVX512X32,
		RTE_ACL_CLASSIFY_AVX512X16,
		RTE_ACL_CLASSIFY_AVX2,
		RTE_ACL_CLASSIFY_SSE,
	};
	const uint16_t width = rte_vect_get_max_simd_bitwidth();
	unsigned int at;
	int chosen = RTE_ACL_CLASSIFY_SCALAR;

	/* rte_acl reads the SIMD width only here. The width is restored below, so that drivers are not affected. */
	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	for (at = 0; at < RTE_DIM(algorithms) && chosen == RTE_ACL_CLASSIFY_SCALAR; at++)
		if (rte_acl_set_ctx_classify(acl, algorithms[at]) == 0)
			chosen = algorithms[at];
	if (chosen == RTE_ACL_CLASSIFY_SCALAR)
		rte_acl_set_ctx_classify(acl, RTE_ACL_CLASSIFY_SCALAR);
	rte_vect_set_max_simd_bitwidth(width);
	return chosen;
}

int sluice_acl_build(const char *name, const struct sluice_acl_rule *rules, uint32_t count,
		struct rte_acl_ctx **acl, int *algorithm, size_t *bytes)
{
	const struct rte_acl_param parameters = {
		.name = name,
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(FIELDS),
		.max_rule_num = count,
	};
	const size_t before = sluice_heap_bytes();
	struct rte_acl_ctx *made;
	uint32_t number;
	int rc = 0;

	made = rte_acl_create(&parameters);
	if (made == NULL)
		return -rte_errno;
	for (number = 0; number < count && rc == 0; number++)
		rc = add(made, &rules[number], number);
	if (rc == 0)
		rc = rte_acl_build(made, &config);
	if (rc != 0) {
		rte_acl_free(made);
		return rc;
	}
	*algorithm = choose(made);
	*bytes = sluice_heap_bytes() - before;
	*acl = made;
	return 0;
}

int sluice_acl_classify(const struct rte_acl_ctx *acl, const uint8_t **keys, uint32_t *found, uint32_t count)
{
	return rte_acl_classify(acl, keys, found, count, 1);
}

const char *sluice_acl_algorithm_name(int algorithm)
{
	switch (algorithm) {
	case RTE_ACL_CLASSIFY_AVX512X32: return "avx512x32";
	case RTE_ACL_CLASSIFY_AVX512X16: return "avx512x16";
	case RTE_ACL_CLASSIFY_AVX2: return "avx2";
	case RTE_ACL_CLASSIFY_SSE: return "sse";
	default: return "scalar";
	}
}

void sluice_acl_free(struct rte_acl_ctx *acl)
{
	rte_acl_free(acl);
}
