/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/cluster.h"

#include <stddef.h>

enum { USUAL, PCIE4, PCIE5, NVLINK3, NVLINK4, NVLINK5 };
enum { NO_CURVE, AMPERE, HOPPER };
enum { NET_ANY, NET_10G, NET_25G, NET_100G, NET_200G, NET_400G };

// clang-format off
/*
 * Sources. Figures "with sparsity" of a data sheet are halved; those of FP64 are of tensor cores.
 * A100: NVIDIA A100 Tensor Core GPU data sheet (nvidia-1758950-r4), table "System specifications":
 *   FP64 19.5, FP32 19.5, TF32 156, BFLOAT16 and FP16 312 TFLOPS; 1,555, 1,935 and 2,039 GB/s.
 *   Network: NVIDIA DGX A100 data sheet, 8 ports of 200 Gb/s HDR InfiniBand for 8 GPUs.
 * H100: NVIDIA H100 Tensor Core GPU data sheet, table "Technical specifications": FP64 67 and 51,
 *   FP32 67 and 51, TF32 989 and 756, BFLOAT16 and FP16 1,979 and 1,513 with sparsity; 80 GB; 3.35
 *   and 2 TB/s. Network: NVIDIA DGX H100 data sheet, 8 ports of 400 Gb/s for 8 GPUs.
 * H200: NVIDIA H200 Tensor Core GPU data sheet: operations as the H100 SXM's; 141 GB, 4.8 TB/s.
 *   Network: NVIDIA DGX H200 data sheet, as DGX H100's.
 * B200: NVIDIA Blackwell Architecture Technical Brief, table of HGX B200: FP64 40, FP32 80, TF32
 *   2,200, FP16 and BF16 4,500 with sparsity. Memory: NVIDIA DGX B200 data sheet, 1,440 GB and 64
 *   TB/s for 8 GPUs; its network is 8 ports of 400 Gb/s.
 * L40S: NVIDIA L40S data sheet: FP32 91.6, TF32 183, BFLOAT16 and FP16 362.05, 48 GB, 864 GB/s,
 *   PCIe Gen4 x16. FP64: NVIDIA Ada GPU Architecture whitepaper, a 64th of FP32.
 * Products: the part of the BF16 peak that the best of many shapes reaches: S. Bekman, Machine
 *   Learning Engineering, compute/accelerator/README.md, "Maximum Achievable Matmul FLOPS
 *   comparison table": A100 SXM 86.9 %, A100 PCIe 81.1, H100 SXM 80.3 and "H200 is the same", B200
 *   77.6. It has no H100 PCIe, which is taken to be as the SXM's, and no L40S, which is taken to be
 *   as the A100 PCIe's: another card with mma instructions and a limit of 300 to 350 W.
 * Attention: FlashAttention-2 of long rows, forward, without a mask: up to 73 % of an A100's peak
 *   (Dao, "FlashAttention-2", 2023, abstract), 370 of an H100's 989.5 TFLOPS (Shah et al.,
 *   "FlashAttention-3", 2024, figure 5). A B200 is taken to be as an H100, an L40S as an A100.
 *   src/graph/ops/attention.c has what shorter rows, masks and gradients reach of it.
 */
const tsri_gpu_spec tsri_gpu_specs[] = {
    /* name          f64   f32   tf32   f16     of     these  curve   GB   GB/s  link     network */
    {"cpu",          0,    0,    0,     0,      0,     0,     0,      0,   0,    USUAL,   NET_ANY},
    {"a100-40-pcie", 19.5, 19.5, 156,   312,    0.811, 0.73,  AMPERE, 40,  1555, PCIE4,   NET_ANY},
    {"a100-40-sxm",  19.5, 19.5, 156,   312,    0.869, 0.73,  AMPERE, 40,  1555, NVLINK3, NET_200G},
    {"a100-80-pcie", 19.5, 19.5, 156,   312,    0.811, 0.73,  AMPERE, 80,  1935, PCIE4,   NET_ANY},
    {"a100-80-sxm",  19.5, 19.5, 156,   312,    0.869, 0.73,  AMPERE, 80,  2039, NVLINK3, NET_200G},
    {"h100-pcie",    51,   51,   378,   756.5,  0.803, 0.374, HOPPER, 80,  2000, PCIE5,   NET_ANY},
    {"h100-sxm",     67,   67,   494.5, 989.5,  0.803, 0.374, HOPPER, 80,  3350, NVLINK4, NET_400G},
    {"h200",         67,   67,   494.5, 989.5,  0.803, 0.374, HOPPER, 141, 4800, NVLINK4, NET_400G},
    {"b200",         40,   80,   1100,  2250,   0.776, 0.374, HOPPER, 180, 8000, NVLINK5, NET_400G},
    {"l40s",         1.43, 91.6, 183,   362.05, 0.811, 0.73,  AMPERE, 48,  864,  PCIE4,   NET_ANY},
    {NULL,           0,    0,    0,     0,      0,     0,     0,      0,   0,    USUAL,   NET_ANY},
};

/*
 * The part of what large products reach that smaller ones do, their start included, by the time
 * that they would take at that pace: 4^i / 8 us.
 * H100: medians of shapes of equal work in XLA's measured table for sm_90 in bf16
 *   (xla/service/gpu/model/matmul_interpolator_data.h, tensorflow/tensorflow 372d578b): 2.1 GFLOP
 *   at 222 TFLOPS, 8.6 at 470, 34 at 738, 137 at 783, where it ends.
 * A100: the curve of Calculon's machine, by which it meets measured steps within 4 % on average
 *   (calculon-ai/calculon, systems/a100_80g.json, commit caa4b11f): of its best 11 % for no
 *   work, 63 % at 1 GFLOP, 95 % at 16 and all at 128.
 */
static const double product_curves[][TSRI_CLUSTER_SIZES] = {
    [NO_CURVE] = {0},
    [AMPERE] = {0.123, 0.177, 0.391, 0.656, 0.793, 0.956, 1, 1},
    [HOPPER] = {0.021, 0.085, 0.244, 0.535, 0.878, 0.991, 1, 1},
};

/*
 * Bandwidths are those that NCCL plans with, without the protocols' share (src/graph/topo.h):
 * SM80_NVLINK_BW 20.0, SM90_NVLINK_BW 20.6 and SM100_NVLINK_BW 40.1 GB/s a link, of which an A100
 * has 12, an H100 and a B200 18 (through NVSwitch each GPU reaches each other one with all); PCI_BW
 * 12.0 GB/s for Gen3 x16, twice and four times as much for Gen4 and Gen5.
 * Latencies are NCCL's too (src/graph/tuning.cc, Ring, LL): 6.6 us, and 0.6 us (NVLink) or 1.0 us
 * (PCIe) for each of the 7 steps among the 8 GPUs of a node.
 */
const tsri_link_spec tsri_link_specs[] = {
    {"usual",   NULL,       0,         0},
    {"pcie4",   "PCIe",    24,        13.6},
    {"pcie5",   "PCIe",    48,        13.6},
    {"nvlink3", "NVLink", 240,        10.8},
    {"nvlink4", "NVLink", 370.8,      10.8},
    {"nvlink5", "NVLink", 721.8,      10.8},
    {NULL,      NULL,       0,         0},
};

const tsri_network_spec tsri_network_specs[] = {
    {"usual", 0},   {"10g", 10},    {"25g", 25}, {"100g", 100},
    {"200g", 200}, {"400g", 400}, {NULL, 0},
};
// clang-format on

const char *const tsri_gpu_names[] = {"cpu",         "a100-40-pcie", "a100-40-sxm", "a100-80-pcie",
                                      "a100-80-sxm", "h100-pcie",    "h100-sxm",    "h200",
                                      "b200",        "l40s",         NULL};
const char *const tsri_link_names[] = {"usual",   "pcie4",   "pcie5", "nvlink3",
                                       "nvlink4", "nvlink5", NULL};
const char *const tsri_network_names[] = {"usual", "10g", "25g", "100g", "200g", "400g", NULL};

/* NCCL's NET_BW (src/graph/topo.h): 12.0 GB/s of 100 Gb/s. */
static const double bytes_of_gbit = 0.12e9;
/* NCCL's figures (src/graph/tuning.cc, Ring, LL): 6.6 us, and 2.7 us for each of the 7 steps among
 * 8 nodes. */
static const double network_latency_s = 25.5e-6;
/* The part of peak bandwidth: Calculon's for large arrays on an A100 (systems/a100_80g.json, 100
 * MB). */
static const double memory_efficiency = 0.9;
/* That a kernel of a captured graph takes before it computes: an order of magnitude, between 0.6 us
 * for a node of a graph that is replayed and 2.7 us for a launch. */
static const double gpu_kernel_s = 2e-6;

enum { USUAL_NODE = 8 }; /* GPUs of the vendor's own nodes: DGX and HGX */

double tsri_cluster_efficiency(const tsri_cluster *c)
{
    return c->efficiency > 0 ? c->efficiency : tsri_gpu_specs[c->gpu].products;
}

tsr_device tsri_cluster_device(const tsri_cluster *c)
{
    return c->gpu ? TSR_DEVICE_CUDA : TSRI_TARGET_HOST;
}

int64_t tsri_cluster_memory(const tsri_cluster *c)
{
    return c->memory > 0 ? c->memory : (int64_t)(tsri_gpu_specs[c->gpu].memory_gb * 1e9);
}

int64_t tsri_cluster_node(const tsri_cluster *c)
{
    return c->ranks_per_node > 0  ? c->ranks_per_node
           : c->gpus_per_node > 0 ? c->gpus_per_node
           : c->gpu               ? USUAL_NODE
                                  : 0;
}

static int network_of(const tsri_cluster *c)
{
    return c->network ? c->network : tsri_gpu_specs[c->gpu].network;
}

bool tsri_cluster_has_network(const tsri_cluster *c)
{
    return network_of(c) || c->node_bandwidth_gb_s > 0 || !c->gpu;
}

/* --- figures ---------------------------------------------------------------------------------- */
static void override(double *figure, double said, double unit)
{
    if (said > 0)
        *figure = said * unit;
}

static void apply_flops(const tsri_cluster *c, tsri_cluster_figures *f)
{
    const tsri_gpu_spec *gpu = &tsri_gpu_specs[c->gpu];
    const struct {
        tsr_dtype dtype;
        double peak, said;
    } rows[] = {{TSR_F64, gpu->f64, c->tflops_f64},
                {TSR_F32, c->tf32 ? gpu->tf32 : gpu->f32, c->tflops_f32},
                {TSR_F16, gpu->f16, c->tflops_f16},
                {TSR_BF16, gpu->f16, c->tflops_bf16}};
    f->attention_share = c->gpu ? gpu->attention / gpu->products : 0;
    /* Operations a second of one's own are those of all sizes. */
    const bool own = c->tflops > 0 || c->tflops_f64 > 0 || c->tflops_f32 > 0 || c->tflops_f16 > 0 ||
                     c->tflops_bf16 > 0;
    for (int i = 0; i < TSRI_CLUSTER_SIZES; i++)
        f->product_share[i] = own ? 0 : product_curves[gpu->curve][i];
    override(&f->flops_per_s, gpu->f32 * tsri_cluster_efficiency(c), 1e12);
    override(&f->flops_per_s, c->tflops, 1e12);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double *at = &f->flops_of_dtype[rows[i].dtype];
        if (c->tflops > 0)
            *at = 0; /* it holds for all */
        else
            override(at, rows[i].peak * tsri_cluster_efficiency(c), 1e12);
        override(at, rows[i].said, 1e12);
    }
}

/* Names a level: as said, else by its preset (NULL: none); figures of one's own without either have
 * no name. */
static void name_link(tsri_cluster_figures *f, int level, const char *said, const char *preset,
                      double latency_us, double bandwidth_gb_s)
{
    if (said)
        f->link[level].name = said;
    else if (preset)
        f->link[level].name = preset;
    else if (latency_us > 0 || bandwidth_gb_s > 0)
        f->link[level].name = NULL;
}

/* Each level is the one below it where nothing else is said. */
static void apply_links(const tsri_cluster *c, tsri_cluster_figures *f)
{
    const tsri_gpu_spec *gpu = &tsri_gpu_specs[c->gpu];
    const tsri_link_spec *link = &tsri_link_specs[c->link ? c->link : gpu->link];
    const int64_t node = tsri_cluster_node(c);
    override(&f->link[0].bytes_per_s, link->gb_s, 1e9);
    override(&f->link[0].latency_s, link->latency_us, 1e-6);
    override(&f->link[0].bytes_per_s, c->bandwidth_gb_s, 1e9);
    override(&f->link[0].latency_s, c->latency_us, 1e-6);
    name_link(f, 0, c->link_name, link->kind, c->latency_us, c->bandwidth_gb_s);
    f->nlinks = 1;
    f->link[0].ranks = (int)node;
    if (node <= 0)
        return;
    const double gbit = tsri_network_specs[network_of(c)].gbit_s;
    const double ports = c->network_ports > 0 ? (double)c->network_ports
                         : gpu->network       ? (double)node
                                              : 1;
    f->link[1] = f->link[0];
    f->link[1].ranks = 0;
    f->link[1].name = "network";
    override(&f->link[1].bytes_per_s, gbit * ports / (double)node, bytes_of_gbit);
    override(&f->link[1].latency_s, gbit > 0 ? network_latency_s : 0, 1);
    override(&f->link[1].bytes_per_s, c->node_bandwidth_gb_s, 1e9);
    override(&f->link[1].latency_s, c->node_latency_us, 1e-6);
    name_link(f, 1, c->node_link_name, gbit > 0 ? "network" : NULL, c->node_latency_us,
              c->node_bandwidth_gb_s);
    f->nlinks = 2;
    if (c->nodes_per_rack <= 0)
        return;
    f->link[2] = f->link[1];
    f->link[1].ranks = (int)(node * c->nodes_per_rack);
    if (c->rack_oversubscription > 0)
        f->link[2].bytes_per_s /= c->rack_oversubscription;
    override(&f->link[2].bytes_per_s, c->rack_bandwidth_gb_s, 1e9);
    override(&f->link[2].latency_s, c->rack_latency_us, 1e-6);
    const bool known = f->link[1].name && !c->node_link_name;
    name_link(f, 2, c->rack_link_name, known ? "network between racks" : NULL, 1, 1);
    if (known)
        f->link[1].name = "network in racks";
    f->nlinks = 3;
}

void tsri_cluster_apply(const tsri_cluster *c, tsri_cluster_figures *f)
{
    const tsri_gpu_spec *gpu = &tsri_gpu_specs[c->gpu];
    apply_flops(c, f);
    override(&f->local_bytes_per_s, gpu->memory_gb_s * memory_efficiency, 1e9);
    override(&f->local_bytes_per_s, c->memory_gb_s, 1e9);
    override(&f->kernel_s, c->gpu ? gpu_kernel_s : 0, 1);
    override(&f->kernel_s, c->kernel_us, 1e-6);
    apply_links(c, f);
}
