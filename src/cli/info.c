/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera info`: this machine, this build, and what links cost here. */
#include "src/cli/links.h"
#include "src/cli/cli.h"
#include "src/cli/options.h"
#include "kernels/cpu/fast/isa.h"
#include "kernels/cpu/onednn/onednn.h"
#include "kernels/module.h"
#include "src/config/tree.h"
#include "src/data/dataset.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

typedef struct info_args {
    bool measure, force, json;
    int64_t ranks;
} info_args;

#define AT(field) offsetof(info_args, field)
static const cli_option options[] = {
    {"measure", 'm', CLI_FLAG, AT(measure), NULL,
     "measures what links cost between thread ranks here,\nand keeps it for plan, box and run", 0,
     0, NULL},
    {"ranks", 'n', CLI_INT, AT(ranks), "N", "ranks that measure; default: the cores, 2 to 8", 2,
     256, "a number of ranks"},
    {"force", 'f', CLI_FLAG, AT(force), NULL,
     "keeps the figures even if other programs disturb them", 0, 0, NULL},
    {"json", 'j', CLI_FLAG, AT(json), NULL, "print JSON", 0, 0, NULL},
};
#undef AT

static const cli_spec spec = {
    .command = "info",
    .usage = "[--measure] [--json]",
    .about = "Says what this machine and this build are, and which figures the planner's\n"
             "estimates are made of.",
    CLI_OPTIONS(options),
};

enum { MAX_LIBRARIES = 4, MAX_GPUS = 64 };

typedef struct info_library {
    const char *name, *version;
} info_library;

typedef struct info {
    char machine[192], features[256], onednn[32], cuda[520], cuda_libraries[128];
    tsri_module_gpu gpu[MAX_GPUS];
    int ngpus; /* may be more than MAX_GPUS */
    const char *isa;
    int cores; /* that this process may use */
    uint64_t memory, available;
    info_library library[MAX_LIBRARIES];
    cli_links links;
    char path[1024];
} info;

/* --- finding out ------------------------------------------------------------------------------ */
static void add_feature(info *i, bool has, const char *name)
{
    size_t used = strlen(i->features);
    if (has)
        snprintf(i->features + used, sizeof i->features - used, "%s%s", used ? " " : "", name);
}

static void find_features(info *i)
{
#ifdef TSRI_FAST_X86
    add_feature(i, __builtin_cpu_supports("sse4.2"), "sse4.2");
    add_feature(i, __builtin_cpu_supports("avx2"), "avx2");
    add_feature(i, __builtin_cpu_supports("fma"), "fma");
    add_feature(i, __builtin_cpu_supports("avx512f"), "avx512f");
    add_feature(i, __builtin_cpu_supports("avx512bw"), "avx512bw");
    add_feature(i, __builtin_cpu_supports("avx512vl"), "avx512vl");
    add_feature(i, __builtin_cpu_supports("avx512dq"), "avx512dq");
    add_feature(i, __builtin_cpu_supports("avx512vnni"), "avx512vnni");
    add_feature(i, __builtin_cpu_supports("avx512bf16"), "avx512bf16");
#endif
    i->isa = tsri_fast_isa_best()->impl;
}

static void find_memory(info *i)
{
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        uint64_t kb;
        if (sscanf(line, "MemTotal: %" SCNu64, &kb) == 1)
            i->memory = kb * 1024;
        else if (sscanf(line, "MemAvailable: %" SCNu64, &kb) == 1)
            i->available = kb * 1024;
    }
    if (f)
        fclose(f);
}

static void find_gpus(info *i)
{
    const tsri_module *module;
    if (tsri_module_get(TSR_DEVICE_CUDA, &module) == TSR_OK) {
        snprintf(i->cuda_libraries, sizeof i->cuda_libraries, "%s", module->versions);
        if (module->gpus(MAX_GPUS, i->gpu, &i->ngpus) == TSR_OK) {
            snprintf(i->cuda, sizeof i->cuda, "available");
            return;
        }
    }
    i->ngpus = 0;
    snprintf(i->cuda, sizeof i->cuda, "not there: %.500s", tsr_last_error());
}

static tsr_status find_out(const info_args *a, info *i)
{
    cpu_set_t set;
    cli_machine(i->machine, sizeof i->machine);
    find_features(i);
    find_memory(i);
    find_gpus(i);
    i->cores = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                      : CPU_COUNT(&set);
    tsri_onednn_version(i->onednn, sizeof i->onednn);
    i->library[0] = (info_library){"oneDNN", i->onednn[0] ? i->onednn : "not built in"};
    i->library[1] = (info_library){"libyaml", tsri_yaml_version()};
    i->library[2] = (info_library){"zlib", tsri_zlib_version()};
    i->library[3] = (info_library){"cJSON", cJSON_Version()};
    if (!cli_links_path(i->path, sizeof i->path))
        i->path[0] = 0;
    if (!a->measure) {
        cli_links_find(TSRI_TARGET_HOST, &i->links);
        return TSR_OK;
    }
    int ranks = i->cores < 2 ? 2 : i->cores > 8 ? 8 : i->cores;
    return cli_links_measure(a->ranks ? (int)a->ranks : ranks, a->force, &i->links);
}

/* --- saying it -------------------------------------------------------------------------------- */
static tsri_cost_model model_of(const info *i)
{
    tsr_compile_opts opts = *TSR_COMPILE_OPTS();
    cli_links_fill(&i->links, NULL, &opts);
    return cli_links_model(&opts, TSRI_TARGET_HOST);
}

static void print_text(const info *i)
{
    const cli_style style = cli_style_of(stdout);
    const tsri_cost_model m = model_of(i);
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX];
    cli_say("%stessera %s%s\n", style.bold, TSR_VERSION_STRING, style.plain);
    cli_say("%-12s %s; %d usable\n", "machine", i->machine, i->cores);
    cli_say("%-12s %s, %s available\n", "memory", cli_bytes((double)i->memory, a),
            cli_bytes((double)i->available, b));
    cli_say("%-12s kernels use %s; the processor has %s\n", "cpu", i->isa, i->features);
    if (i->ngpus == 0)
        cli_say("%-12s %s\n", "cuda", i->cuda);
    for (int g = 0; g < i->ngpus && g < MAX_GPUS; g++)
        cli_say("%-12s %d: %s, sm_%d%d, %d processors, %s, at %s\n", g ? "" : "cuda", g,
                i->gpu[g].name, i->gpu[g].major, i->gpu[g].minor, i->gpu[g].processors,
                cli_bytes((double)i->gpu[g].bytes, a), i->gpu[g].id);
    if (i->cuda_libraries[0])
        cli_say("%-12s %s\n", "", i->cuda_libraries);
    cli_say("%-12s", "libraries");
    for (int l = 0; l < MAX_LIBRARIES; l++)
        cli_say("%s %s %s", l ? "," : "", i->library[l].name, i->library[l].version);
    cli_say("\n%splanner's figures%s", style.bold, style.plain);
    if (i->links.measured)
        cli_say(", measured with %d thread ranks, %s\n", i->links.ranks, i->links.when);
    else
        cli_say(", built in%s%s; --measure measures\n", i->links.why[0] ? ": " : "", i->links.why);
    cli_say("%-12s hand-shake %s, %s/s between ranks\n", "link",
            cli_seconds(m.link[0].latency_s, a), cli_bytes(m.link[0].bytes_per_s, b));
    cli_say("%-12s %s/s read and written\n", "own memory", cli_bytes(m.local_bytes_per_s, a));
    cli_say("%-12s %.1f GFLOP/s, in f64 %.1f; kernel start %s\n", "compute", m.flops_per_s / 1e9,
            tsri_flops_of(&m, TSR_F64) / 1e9, cli_seconds(m.kernel_s, a));
    cli_say("%-12s %s\n", "kept in", i->path[0] ? i->path : "no folder: set XDG_CACHE_HOME");
}

static cJSON *json_links(const info *i)
{
    const tsri_cost_model m = model_of(i);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddBoolToObject(json, "measured", i->links.measured);
    if (i->links.measured) {
        cJSON_AddNumberToObject(json, "ranks", i->links.ranks);
        cJSON_AddStringToObject(json, "when", i->links.when);
    } else if (i->links.why[0]) {
        cJSON_AddStringToObject(json, "why", i->links.why);
    }
    cJSON_AddNumberToObject(json, "latency_s", m.link[0].latency_s);
    cJSON_AddNumberToObject(json, "bytes_per_s", m.link[0].bytes_per_s);
    cJSON_AddNumberToObject(json, "local_bytes_per_s", m.local_bytes_per_s);
    cJSON_AddNumberToObject(json, "flops_per_s", m.flops_per_s);
    cJSON_AddNumberToObject(json, "f64_flops_per_s", tsri_flops_of(&m, TSR_F64));
    cJSON_AddNumberToObject(json, "kernel_s", m.kernel_s);
    cJSON_AddStringToObject(json, "file", i->path);
    return json;
}

static void add_gpus(cJSON *json, const info *i)
{
    cJSON *gpus = cJSON_AddArrayToObject(json, "gpus");
    for (int g = 0; g < i->ngpus && g < MAX_GPUS; g++) {
        cJSON *gpu = cJSON_CreateObject();
        cJSON_AddStringToObject(gpu, "name", i->gpu[g].name);
        cJSON_AddStringToObject(gpu, "id", i->gpu[g].id);
        cJSON_AddNumberToObject(gpu, "compute_capability", 10 * i->gpu[g].major + i->gpu[g].minor);
        cJSON_AddNumberToObject(gpu, "processors", i->gpu[g].processors);
        cJSON_AddNumberToObject(gpu, "memory_bytes", (double)i->gpu[g].bytes);
        cJSON_AddItemToArray(gpus, gpu);
    }
    cJSON_AddStringToObject(json, "cuda_libraries", i->cuda_libraries);
}

static int print_as_json(const info *i)
{
    cJSON *json = cJSON_CreateObject(), *devices = cJSON_CreateObject(),
          *libraries = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "version", TSR_VERSION_STRING);
    cJSON_AddStringToObject(json, "machine", i->machine);
    cJSON_AddNumberToObject(json, "cores", i->cores);
    cJSON_AddNumberToObject(json, "memory_bytes", (double)i->memory);
    cJSON_AddNumberToObject(json, "available_bytes", (double)i->available);
    cJSON_AddStringToObject(json, "cpu_features", i->features);
    cJSON_AddStringToObject(json, "kernels_use", i->isa);
    cJSON_AddStringToObject(devices, "cpu", "available");
    cJSON_AddStringToObject(devices, "cuda", i->cuda);
    cJSON_AddItemToObject(json, "devices", devices);
    add_gpus(json, i);
    for (int l = 0; l < MAX_LIBRARIES; l++)
        cJSON_AddStringToObject(libraries, i->library[l].name, i->library[l].version);
    cJSON_AddItemToObject(json, "libraries", libraries);
    cJSON_AddItemToObject(json, "model", json_links(i));
    return cli_print_json(json);
}

int cli_info(int argc, char **argv)
{
    info_args a = {0};
    info i = {0};
    int n, code = cli_parse(&spec, argc, argv, &a, &n);
    if (code >= 0)
        return code;
    if ((a.ranks || a.force) && !a.measure)
        return cli_bad_usage(&spec, "%s is for --measure", a.ranks ? "--ranks" : "--force");
    if (find_out(&a, &i) != TSR_OK)
        return cli_fail("info");
    if (a.json)
        return print_as_json(&i);
    print_text(&i);
    return CLI_OK;
}
