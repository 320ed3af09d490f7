/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera ckpt`: the command lines, and what there is. */
#include "src/cli/ckpt/ckpt.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/options.h"
#include "src/core/dims.h"
#include "src/train/checkpoint/folder.h"

typedef struct ckpt_args {
    const char *part, *dtype, *tolerance;
    bool json;
} ckpt_args;

#define AT(field) offsetof(ckpt_args, field)
static const cli_option options[] = {
    {"part", 'p', CLI_TEXT, AT(part), "NAME", "tensors of this part alone, as \"model\"", 0, 0,
     NULL},
    {"dtype", 'd', CLI_TEXT, AT(dtype), "TYPE",
     "convert: floating-point tensors become f32, f16, ...", 0, 0, NULL},
    {"tolerance", 't', CLI_TEXT, AT(tolerance), "X",
     "compare: values may differ by so much; default 0", 0, 0, NULL},
    {"json", 'j', CLI_FLAG, AT(json), NULL, "list: print JSON", 0, 0, NULL},
};
#undef AT

static const cli_spec spec = {
    .command = "ckpt",
    .usage = "list|verify|merge|convert|compare PATH... [OPTIONS]",
    .about = "Looks into checkpoints. PATH is one, a run's folder of them (then its newest), or a\n"
             "safetensors file.\n"
             "\n"
             "  list FOLDER          the checkpoints of a run\n"
             "  list CHECKPOINT      its tensors, and where their pieces are\n"
             "  verify PATH...       reads all bytes and checks their sums\n"
             "  merge PATH FILE      all tensors as one safetensors file\n"
             "  convert PATH FILE    the same, with another dtype\n"
             "  compare PATH PATH    in what two differ",
    CLI_OPTIONS(options),
    .min_operands = 1,
    .max_operands = INT_MAX,
    .missing = "no action",
};

/* --- lists ------------------------------------------------------------------------------------ */
static double all_bytes(const ckpt_source *s)
{
    double bytes = 0;
    for (int i = 0; i < s->ntensors; i++)
        bytes += (double)ckpt_bytes(&s->tensors[i]);
    return bytes;
}

static const char *metric_text(double metric, char buf[32])
{
    snprintf(buf, 32, isnan(metric) ? "-" : "%.6g", metric);
    return buf;
}

static cJSON *json_of(const ckpt_source *s)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "path", s->path);
    cJSON_AddNumberToObject(json, "step", (double)s->index.step);
    cJSON_AddStringToObject(json, "time", s->index.time);
    cJSON_AddNumberToObject(json, "ranks", s->index.nranks);
    cJSON_AddNumberToObject(json, "files", s->index.nfiles);
    cJSON_AddNumberToObject(json, "tensors", s->ntensors);
    cJSON_AddNumberToObject(json, "bytes", all_bytes(s));
    if (!isnan(s->index.metric))
        cJSON_AddNumberToObject(json, "metric", s->index.metric);
    return json;
}

/* A run's checkpoints, a line each. */
static int list_folder(const char *folder, const int64_t *steps, int n, const ckpt_args *a)
{
    cJSON *json = a->json ? cJSON_CreateArray() : NULL;
    int code = CLI_OK;
    if (!a->json)
        cli_say("%10s  %-20s  %5s  %7s  %10s  %s\n", "step", "saved", "ranks", "tensors", "bytes",
                "metric");
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX], number[CLI_NUMBER_MAX], metric[32];
        ckpt_source s = {0};
        tsr_status status = tsri_ckpt_path(folder, steps[i], path);
        if (status == TSR_OK)
            status = ckpt_open(path, false, &s);
        /* A run that saves may have removed it since it was listed. */
        const bool gone = status != TSR_OK && tsri_ckpt_has_gone(NULL, folder, steps[i], "");
        if (status != TSR_OK)
            code = gone ? code : cli_fail("ckpt list");
        else if (a->json)
            cJSON_AddItemToArray(json, json_of(&s));
        else
            cli_say("%10" PRId64 "  %-20s  %5d  %7d  %10s  %s\n", s.index.step, s.index.time,
                    s.index.nranks, s.ntensors, cli_bytes(all_bytes(&s), number),
                    metric_text(s.index.metric, metric));
        ckpt_close(&s);
    }
    return a->json ? (cli_print_json(json) == CLI_OK ? code : CLI_FAILED) : code;
}

static const char *where_of(const ckpt_source *s, const ckpt_tensor *t, char buf[96])
{
    if (!s->is_checkpoint)
        return "";
    const tsri_ckpt_tensor *of = &s->index.tensors[t->entry];
    if (t->piece >= 0)
        snprintf(buf, 96, "rank %d's own", t->piece);
    else if (of->own)
        snprintf(buf, 96, "the same on all ranks");
    else
        snprintf(buf, 96, "%.60s, %d piece%s", of->sbp, of->npieces, of->npieces == 1 ? "" : "s");
    return buf;
}

static bool is_of_part(const char *name, const char *part)
{
    const size_t n = part ? strlen(part) : 0;
    return !n || (!strncmp(name, part, n) && (!name[n] || name[n] == '/'));
}

static cJSON *json_tensor(const ckpt_source *s, const ckpt_tensor *t)
{
    char where[96];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", t->name);
    cJSON_AddStringToObject(json, "dtype", tsr_dtype_name(t->dtype));
    cJSON *shape = cJSON_AddArrayToObject(json, "shape");
    for (int i = 0; i < t->dims.ndim; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->dims.d[i]));
    cJSON_AddStringToObject(json, "where", where_of(s, t, where));
    return json;
}

static int list_tensors(const char *path, const ckpt_args *a)
{
    ckpt_source s;
    char number[CLI_NUMBER_MAX], metric[32];
    if (ckpt_open(path, false, &s) != TSR_OK) {
        ckpt_close(&s);
        return cli_fail("ckpt list");
    }
    cJSON *json = a->json ? s.is_checkpoint ? json_of(&s) : cJSON_CreateObject() : NULL;
    cJSON *all = a->json ? cJSON_AddArrayToObject(json, "all") : NULL;
    if (!a->json && s.is_checkpoint)
        cli_say("step %" PRId64 ", saved %s by %d ranks, metric %s, %d tensors, %s\n", s.index.step,
                s.index.time, s.index.nranks, metric_text(s.index.metric, metric), s.ntensors,
                cli_bytes(all_bytes(&s), number));
    for (int i = 0; i < s.ntensors; i++) {
        const ckpt_tensor *t = &s.tensors[i];
        char dims[TSRI_DIMS_TEXT_MAX], where[96];
        if (!is_of_part(t->name, a->part))
            continue;
        if (a->json)
            cJSON_AddItemToArray(all, json_tensor(&s, t));
        else
            cli_say("  %-44s %-4s (%s)  %s\n", t->name, tsr_dtype_name(t->dtype),
                    tsri_dims_format(t->dims, dims), where_of(&s, t, where));
    }
    ckpt_close(&s);
    return a->json ? cli_print_json(json) : CLI_OK;
}

static int list(const char *path, const ckpt_args *a)
{
    int64_t *steps;
    int n;
    if (ckpt_steps(path, &steps, &n) != TSR_OK)
        return cli_fail("ckpt list");
    const int code = n ? list_folder(path, steps, n, a) : list_tensors(path, a);
    tsri_mem_free(steps);
    return code;
}

/* --- actions ---------------------------------------------------------------------------------- */
static int convert(char **argv, const ckpt_args *a, bool merges)
{
    tsr_dtype dtype = TSR_DTYPE_NONE;
    if (a->dtype && merges)
        return cli_bad_usage(&spec, "merge keeps dtypes; `tessera ckpt convert` changes them");
    if (!a->dtype && !merges)
        return cli_bad_usage(&spec, "convert needs --dtype");
    if (a->dtype)
        dtype = tsr_dtype_parse(a->dtype);
    if (a->dtype && !tsri_is_float(dtype))
        return cli_bad_usage(&spec, "'%s' is no floating-point dtype", a->dtype);
    return ckpt_convert(argv[2], argv[3], a->part, dtype);
}

static int compare(char **argv, const ckpt_args *a)
{
    char *end = NULL;
    const double tolerance = a->tolerance ? strtod(a->tolerance, &end) : 0;
    if (a->tolerance && (end == a->tolerance || *end || !(tolerance >= 0)))
        return cli_bad_usage(&spec, "--tolerance '%s' is no number from 0 on", a->tolerance);
    return ckpt_compare(argv[2], argv[3], a->part, tolerance);
}

int cli_ckpt(int argc, char **argv)
{
    static const struct action {
        const char *name;
        int least, most; /* operands behind it */
    } actions[] = {
        {"list", 1, 1},    {"verify", 1, INT_MAX}, {"merge", 2, 2},
        {"convert", 2, 2}, {"compare", 2, 2},
    };
    enum { ACTIONS = sizeof actions / sizeof *actions };
    ckpt_args a = {0};
    int n, which = 0, code = cli_parse(&spec, argc, argv, &a, &n);
    if (code >= 0)
        return code;
    while (which < ACTIONS && strcmp(actions[which].name, argv[1]) != 0)
        which++;
    if (which == ACTIONS) {
        const char *near = cli_nearest(argv[1], ACTIONS, &actions[0].name, sizeof *actions);
        return cli_bad_usage(&spec, "there is no action '%s'%s%s%s", argv[1],
                             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (n - 1 < actions[which].least || n - 1 > actions[which].most)
        return cli_bad_usage(&spec, "%s takes %d path%s; found %d", argv[1], actions[which].least,
                             actions[which].most == 1 ? "" : "s", n - 1);
    switch (which) {
    case 0:
        return list(argv[2], &a);
    case 1:
        return ckpt_verify(n - 1, argv + 2);
    case 4:
        return compare(argv, &a);
    default:
        return convert(argv, &a, which == 2);
    }
}
