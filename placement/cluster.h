/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters: machines of public data sheets, and the figures that a planner takes for one. Pure. */
#ifndef TESSERA_PLACEMENT_CLUSTER_H
#define TESSERA_PLACEMENT_CLUSTER_H

#include "src/target/target.h"

#include <stdbool.h>
#include <stdint.h>

/* A GPU as its data sheet has it: peaks, without structured sparsity. */
typedef struct tsri_gpu_spec {
    const char *name;           /* "h100-sxm" */
    double f64, f32, tf32, f16; /* 10^12 operations a second; f16: bf16 too */
    double products, attention; /* parts of peak that a large product reaches, and attention */
    int curve;                  /* of smaller products: an index of the curves in cluster.c */
    double memory_gb;           /* 10^9 bytes */
    double memory_gb_s;         /* 10^9 bytes a second */
    int link;                   /* between the GPUs of a node: an index of tsri_link_specs */
    int network;                /* of the vendor's own node, a port for each GPU: an index of
                                 * tsri_network_specs; 0: the card is for any node */
} tsri_gpu_spec;

/* A link between the GPUs of a node. */
typedef struct tsri_link_spec {
    const char *name; /* "nvlink4" */
    const char *kind; /* "NVLink"; NULL: not known */
    double gb_s;      /* that one GPU takes in, in 10^9 bytes a second */
    double latency_us;
} tsri_link_spec;

/* A network between nodes. */
typedef struct tsri_network_spec {
    const char *name; /* "400g" */
    double gbit_s;    /* of a port */
} tsri_network_spec;

/* Entry 0 of each is no preset: this machine's processor, and what is usual for the GPU. The last
 * entry has no name. */
extern const tsri_gpu_spec tsri_gpu_specs[];
extern const tsri_link_spec tsri_link_specs[];
extern const tsri_network_spec tsri_network_specs[];
/* Their names, with a NULL behind the last. */
extern const char *const tsri_gpu_names[], *const tsri_link_names[], *const tsri_network_names[];

/* A cluster as a user describes it. Zero is "not said" throughout. */
typedef struct tsri_cluster {
    int gpu, link, network; /* indices of the tables above */
    int64_t nodes, gpus_per_node, network_ports, nodes_per_rack;
    double rack_oversubscription; /* a node's network by its share of what leaves the rack */
    double efficiency;            /* of peak operations: the part that is assumed */
    bool tf32;                    /* f32 is computed in TF32 */
    int64_t memory;               /* bytes of a rank */
    /* The figures themselves, which override what follows from the above. */
    int64_t ranks_per_node;                      /* 0: all ranks on one node */
    double latency_us, bandwidth_gb_s;           /* within a node */
    double node_latency_us, node_bandwidth_gb_s; /* between nodes; 0: as within one */
    double rack_latency_us, rack_bandwidth_gb_s; /* between racks; 0: as within one */
    double memory_gb_s, tflops, kernel_us;       /* of a rank */
    double tflops_f64, tflops_f32, tflops_f16, tflops_bf16;
    const char *link_name, *node_link_name, *rack_link_name; /* as those of the figures; NULL */
} tsri_cluster;

enum { TSRI_CLUSTER_LEVELS = 3, TSRI_CLUSTER_SIZES = 8 };

/* The figures of a cluster: those that a plan works with. */
typedef struct tsri_cluster_figures {
    int nlinks;
    struct {
        int ranks; /* ranks r with equal r / ranks meet over it; 0: all */
        double latency_s, bytes_per_s;
        const char *name; /* "NVLink", "network"; NULL: figures alone are known */
    } link[TSRI_CLUSTER_LEVELS];
    double local_bytes_per_s;
    double flops_per_s;                       /* 0: not known */
    double flops_of_dtype[TSR_DTYPE_COUNT_];  /* 0: flops_per_s */
    double attention_share;                   /* of these, that long attention reaches; 0: all */
    double product_share[TSRI_CLUSTER_SIZES]; /* of these, that a product reaches which would take
                                               * 4^i / 8 us; the last 0: all */
    double kernel_s;                          /* below 0: not known */
} tsri_cluster_figures;

/* The part of its peak that a GPU is assumed to compute at where nothing is said. */
double tsri_cluster_efficiency(const tsri_cluster *c);
/* Returns the kind of device that a cluster's ranks compute on: of its GPUs, else the host. */
tsr_device tsri_cluster_device(const tsri_cluster *c);
/* Bytes of a rank's memory; 0: not known. */
int64_t tsri_cluster_memory(const tsri_cluster *c);
/* Ranks of a node; 0: all are on one. */
int64_t tsri_cluster_node(const tsri_cluster *c);
/* Whether it is known how nodes talk: by a network, or by a figure. */
bool tsri_cluster_has_network(const tsri_cluster *c);
/* Puts what a cluster says, and what follows from its presets, into the figures of a machine. */
void tsri_cluster_apply(const tsri_cluster *c, tsri_cluster_figures *f);

#endif
