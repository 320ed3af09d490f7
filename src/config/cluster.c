/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters in files: the table of their keys, their short form, and what goes with what. */
#include <string.h>

#include "src/config/inside.h"
#include "src/config/tree_index.h"

#define CLUSTER(kind_, key, low, high, doc_)                                                    \
    {                                                                                           \
        .name = #key, .kind = TSRI_FIELD_##kind_,                                               \
        .offset = offsetof(tsri_config_cluster, said.key), .min = low, .max = high, .doc = doc_ \
    }
#define PRESET(key, words_, doc_)                                                                 \
    {                                                                                             \
        .name = #key, .kind = TSRI_FIELD_WORD, .offset = offsetof(tsri_config_cluster, said.key), \
        .words = words_, .doc = doc_                                                              \
    }
#define NAME(key, doc_)                                                                           \
    {                                                                                             \
        .name = #key, .kind = TSRI_FIELD_TEXT, .offset = offsetof(tsri_config_cluster, said.key), \
        .doc = doc_                                                                               \
    }
static const tsri_field cluster_fields[] = {
    PRESET(gpu, tsri_gpu_names,
           "A rank's processor, with the figures of its data sheet. cpu, the default, is this "
           "machine's: measured figures where there are some (tessera info --measure)."),
    CLUSTER(INT, nodes, 1, 65536, "Default: as many as the ranks need."),
    CLUSTER(INT, gpus_per_node, 1, 65536, "Ranks of a node. Default: 8 of a preset."),
    CLUSTER(INT, nodes_per_rack, 1, 65536, "Default: all nodes are in one rack."),
    PRESET(link, tsri_link_names,
           "Between the ranks of a node. usual, the default, is that of the GPU's own form."),
    PRESET(network, tsri_network_names,
           "Of a port of a node, in Gb/s. usual, the default, is that of NVIDIA's DGX for SXM "
           "forms."),
    CLUSTER(INT, network_ports, 1, 1024,
            "Ports of a node, which its ranks share. Default: of SXM forms one for each GPU, else "
            "1."),
    CLUSTER(FLOAT, rack_oversubscription, 1, 1e6,
            "A node's bandwidth by its share of what leaves the rack. Default: 1."),
    CLUSTER(FLOAT, efficiency, 1e-6, 1,
            "The part of its peak that a GPU computes large products at; small ones and attention "
            "take longer. Default: as is measured, 0.87 on an A100, 0.77 on an H100."),
    CLUSTER(BOOL, tf32, 0, 0, "Products of f32 are computed in TF32 (TESSERA_CUDA_TF32=1)."),
    CLUSTER(BYTES, memory, 0, 0, "Of a rank: the limit where memory_limit is not said."),
    CLUSTER(INT, ranks_per_node, 1, 65536,
            "Overrides a preset, as all keys below. As gpus_per_node; default, without a preset: "
            "all ranks on one node."),
    CLUSTER(FLOAT, latency_us, 1e-6, 1e9, "Of a collective within a node, in microseconds."),
    CLUSTER(FLOAT, bandwidth_gb_s, 1e-6, 1e9, "That a rank has there, in 10^9 bytes a second."),
    CLUSTER(FLOAT, node_latency_us, 1e-6, 1e9, "The same between nodes."),
    CLUSTER(FLOAT, node_bandwidth_gb_s, 1e-6, 1e9, ""),
    CLUSTER(FLOAT, rack_latency_us, 1e-6, 1e9, "The same between racks."),
    CLUSTER(FLOAT, rack_bandwidth_gb_s, 1e-6, 1e9, ""),
    NAME(link_name,
         "What texts call the link within a node. Default: NVLink, PCIe or shared memory "
         "where it is known, else its number."),
    NAME(node_link_name,
         "The same between nodes. Default: network, or a number beside figures alone."),
    NAME(rack_link_name, "The same between racks."),
    CLUSTER(FLOAT, memory_gb_s, 1e-6, 1e9, "That a rank reads and writes of its own memory."),
    CLUSTER(FLOAT, tflops, 1e-6, 1e9,
            "Of a rank, in 10^12 operations a second, as they are assumed: without efficiency."),
    CLUSTER(FLOAT, tflops_f64, 1e-6, 1e9, "The same in f64; else tflops."),
    CLUSTER(FLOAT, tflops_f32, 1e-6, 1e9, ""),
    CLUSTER(FLOAT, tflops_f16, 1e-6, 1e9, ""),
    CLUSTER(FLOAT, tflops_bf16, 1e-6, 1e9, ""),
    CLUSTER(FLOAT, kernel_us, 1e-6, 1e9, "That starting a kernel takes."),
};
const tsri_section tsri_cluster_section = {
    .name = "cluster",
    .size = sizeof(tsri_config_cluster),
    .nfields = (int)(sizeof cluster_fields / sizeof *cluster_fields),
    .fields = cluster_fields};

/* --- the short form --------------------------------------------------------------------------- */
static tsr_status add_key(tsri_pool *pool, tsri_yaml *map, const char *key, const char *text,
                          size_t n)
{
    tsri_yaml *child = tsri_pool_alloc(pool, sizeof *child);
    char *copy = tsri_pool_alloc(pool, n + 1);
    TSRI_NEED(child && copy);
    memcpy(copy, text, n);
    *child = (tsri_yaml){.kind = TSRI_YAML_SCALAR,
                         .line = map->line,
                         .column = map->column,
                         .key_line = map->line,
                         .key_column = map->column,
                         .file = map->file,
                         .text = copy,
                         .key = key};
    tsri_yaml_append(map, child);
    return TSR_OK;
}

tsr_status tsri_cluster_expand(tsri_pool *pool, tsri_yaml *node)
{
    char shown[TSRI_YAML_TEXT_MAX];
    if (!node || node->kind != TSRI_YAML_SCALAR || !node->text[0])
        return TSR_OK;
    const char *text = node->text, *colon = strchr(text, ':');
    const char *count = colon ? colon + 1 : "", *times = strchr(count, 'x');
    size_t digits = strspn(count, "0123456789");
    size_t name = colon ? (size_t)(colon - text) : strlen(text);
    if (!name || (colon && (!digits || count + digits != times || !times[1] ||
                            times[1 + strspn(times + 1, "0123456789")])))
        return tsri_yaml_fail(node,
                              "found %s; legal is a GPU, a GPU with NODESxGPUS, as in "
                              "h100-sxm:16x8, or a mapping",
                              tsri_yaml_shown(node, shown));
    node->kind = TSRI_YAML_MAP;
    TSRI_TRY(add_key(pool, node, "gpu", text, name));
    if (!colon)
        return TSR_OK;
    TSRI_TRY(add_key(pool, node, "nodes", count, digits));
    return add_key(pool, node, "gpus_per_node", times + 1, strlen(times + 1));
}

/* --- checks ----------------------------------------------------------------------------------- */
static bool says(const tsri_config_cluster *c, const char *key)
{
    return tsri_section_has(&tsri_cluster_section, c, key);
}

static tsr_status check_sizes(const tsri_config_cluster *c, int nranks)
{
    const int64_t node = tsri_cluster_node(&c->said), nodes = c->said.nodes;
    if (says(c, "ranks_per_node") && says(c, "gpus_per_node"))
        return tsri_yaml_fail_key(tsri_section_node(c, "ranks_per_node"),
                                  "not beside 'gpus_per_node', which says the same");
    if ((nodes || c->said.nodes_per_rack) && !node)
        return tsri_yaml_fail_key(tsri_section_node(c, nodes ? "nodes" : "nodes_per_rack"),
                                  "needs 'gpus_per_node', whose default is 8 of a preset alone");
    if (nodes && nodes * node < nranks)
        return tsri_yaml_fail(tsri_section_node(c, "nodes"),
                              "%lld node%s of %lld ha%s %lld ranks; %d are needed",
                              (long long)nodes, nodes == 1 ? "" : "s", (long long)node,
                              nodes == 1 ? "s" : "ve", (long long)(nodes * node), nranks);
    return TSR_OK;
}

/* Keys that mean nothing without another one. */
static tsr_status check_pairs(const tsri_config_cluster *c)
{
    const bool preset = c->said.gpu > 0, racks = says(c, "nodes_per_rack");
    const bool network = c->said.network || (preset && tsri_gpu_specs[c->said.gpu].network);
    const struct {
        const char *key;
        bool is_fine;
        const char *needs;
    } rows[] = {
        {"network_ports", network, "'network': whose ports they are"},
        {"rack_oversubscription", racks, "'nodes_per_rack': what a rack is"},
        {"rack_latency_us", racks, "'nodes_per_rack': what a rack is"},
        {"rack_bandwidth_gb_s", racks, "'nodes_per_rack': what a rack is"},
        {"rack_link_name", racks, "'nodes_per_rack': what a rack is"},
        {"efficiency", preset, "'gpu': whose peak it is"},
        {"tf32", preset, "'gpu': whose TF32 it is"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (says(c, rows[i].key) && !rows[i].is_fine)
            return tsri_yaml_fail_key(tsri_section_node(c, rows[i].key), "needs %s", rows[i].needs);
    return TSR_OK;
}

tsr_status tsri_check_cluster(const tsri_config_cluster *c, int nranks)
{
    const int64_t node = tsri_cluster_node(&c->said);
    TSRI_TRY(check_sizes(c, nranks));
    TSRI_TRY(check_pairs(c));
    if (node && nranks > node && !tsri_cluster_has_network(&c->said))
        return tsri_yaml_fail_key(c->head.node,
                                  "'network' is missing: %d ranks are more than a node's %lld, and "
                                  "%s is a card for any; legal are 10g, 25g, 100g, 200g and 400g",
                                  nranks, (long long)node, tsri_gpu_names[c->said.gpu]);
    return TSR_OK;
}

/* --- alone ------------------------------------------------------------------------------------ */
tsr_status tsri_cluster_parse(tsri_pool *pool, const char *what, const char *text, int nranks,
                              tsri_cluster *out_cluster)
{
    const tsri_reader r = {.pool = pool, .working = "."};
    tsri_config_cluster c = {.said = {0}};
    tsri_yaml *node;
    TSRI_TRY(tsri_yaml_parse(pool, what, text, strlen(text), &node));
    TSRI_TRY(tsri_cluster_expand(pool, node));
    TSRI_TRY(tsri_section_read(&r, &tsri_cluster_section, node, node, &c));
    TSRI_TRY(tsri_check_cluster(&c, nranks));
    *out_cluster = c.said;
    return TSR_OK;
}
