/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera plan`: what an experiment would do, without devices or data. */
#include "src/cli/plan/plan.h"
#include "src/cli/options.h"
#include "src/cli/plan/ask.h"
#include "src/cli/plan/progress.h"
#include "src/core/new_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20 };

typedef struct plan_args {
    const char *html, *compare;
    struct cJSON *plans; /* that a page of two has so far */
    int64_t ranks, memory_limit;
    cli_list sets;
    const char *dot;
    bool json, full, verbose, longer;
    const char *why, *csv, *best;
    cli_list sweeps;
    bool no_plugins, fixed;
} plan_args;

#define AT(field) offsetof(plan_args, field)
static const cli_option options[] = {
    {"ranks", 'n', CLI_INT, AT(ranks), "N", "ranks of the world; those that the file names", 1,
     MAX_RANKS, "a number of ranks"},
    {"set", 's', CLI_LIST, AT(sets), "PATH=VALUE",
     "overrides an entry of the file; may be given again", 0, 0, NULL},
    {"html", 0, CLI_TEXT, AT(html), "FILE", "writes a page for a browser", 0, 0, NULL},
    {"compare", 0, CLI_TEXT, AT(compare), "FILE.yaml", "puts its plan beside, on the page", 0, 0,
     NULL},
    {"memory-limit", 'm', CLI_BYTES, AT(memory_limit), "BYTES", "that a rank may use, like 512M", 0,
     0, NULL},
    {"dot", 'd', CLI_TEXT, AT(dot), "FILE", "writes a picture for Graphviz", 0, 0, NULL},
    {"long", 'l', CLI_FLAG, AT(longer), NULL, "bars of time and memory, what is sent, next best", 0,
     0, NULL},
    {"full", 'f', CLI_FLAG, AT(full), NULL, "every tensor and conversion, and why", 0, 0, NULL},
    {"verbose", 'v', CLI_FLAG, AT(verbose), NULL,
     "as --full, with each of the lines that are alike", 0, 0, NULL},
    {"json", 'j', CLI_FLAG, AT(json), NULL, "print JSON", 0, 0, NULL},
    {"why", 'w', CLI_TEXT, AT(why), "NAME", "why a tensor is as it is, and the cost of others", 0,
     0, NULL},
    {"sweep", 'S', CLI_LIST, AT(sweeps), "PATH=V,V,...",
     "a table of plans, one a value; again: a grid", 0, 0, NULL},
    {"fixed", 0, CLI_FLAG, AT(fixed), NULL, "sweep by pricing the file's own plan again", 0, 0,
     NULL},
    {"best", 0, CLI_TEXT, AT(best), "FIGURE", "of a sweep: step, tokens_per_s, mfu, memory, ...", 0,
     0, NULL},
    {"csv", 0, CLI_TEXT, AT(csv), "FILE", "writes the sweep's table as CSV", 0, 0, NULL},
    CLI_NO_PLUGINS(AT(no_plugins)),
};
#undef AT

static const cli_spec spec = {
    .command = "plan",
    .usage = "FILE.yaml [FILE.yaml...] [OPTIONS]",
    .about = "Compiles an experiment for ranks that are only imagined, and says whether it\n"
             "fits, what a step takes and is bound by, how ranks share the work, and which\n"
             "other layouts to try. Needs no data and no devices. See tessera-yaml(5).",
    CLI_OPTIONS(options),
    .min_operands = 1,
    .max_operands = PLAN_COMPARE_MAX,
    .missing = "no FILE.yaml to plan",
};

void plan_links_source(const plan_view *v, char buf[256])
{
    const cli_links *l = v->links;
    if (l->measured)
        snprintf(buf, 256, "measured on this machine with %d ranks, %s", l->ranks, l->when);
    else
        snprintf(buf, 256, "built in%s%s; `tessera info --measure` measures", l->why[0] ? ": " : "",
                 l->why);
    const tsri_cluster *cluster = tsri_experiment_cluster(v->experiment);
    if (cluster && cluster->gpu) {
        snprintf(buf, 256, "the data sheet of %s and the file's cluster",
                 tsri_gpu_specs[cluster->gpu].name);
    } else if (v->has_cluster) {
        char rest[256];
        memcpy(rest, buf, sizeof rest);
        snprintf(buf, 256, "the file's cluster; others %.220s", rest);
    }
}

/* --- the command ------------------------------------------------------------------------------ */
static int write_dot(const plan_args *a, const plan_view *v)
{
    tsri_new_file file;
    int rc = tsri_new_file_stream(&file, a->dot);
    if (!rc && !plan_write_dot(v, file.stream)) {
        rc = -ENOMEM;
        tsri_new_file_drop(&file);
    } else if (!rc) {
        rc = tsri_new_file_keep(&file, false);
    }
    if (!rc)
        return CLI_OK;
    tsri_fshow(stderr, "tessera plan: %s: %s\n", a->dot, strerror(-rc));
    return CLI_FAILED;
}

static int show(const plan_args *a, const plan_view *v)
{
    if (a->html && plan_write_html(v, a->html, a->plans) != TSR_OK)
        return cli_fail("plan");
    if (a->dot && write_dot(a, v) != CLI_OK)
        return CLI_FAILED;
    if (cJSON_GetArraySize(a->plans) > 1)
        return CLI_OK; /* the other one alone is told in text */
    if (a->json)
        return cli_print_json(plan_make_json(v));
    if (a->full || a->verbose ? plan_print_full(v)
        : a->longer           ? plan_print_long(v)
                              : plan_print_screen(v))
        return CLI_OK;
    tsri_fshow(stderr, "tessera plan: out of memory\n");
    return CLI_FAILED;
}

static plan_source source_of(const plan_args *a, const char *path)
{
    return (plan_source){.path = path,
                         .nsets = a->sets.n,
                         .sets = a->sets.items,
                         .ranks = (int)a->ranks,
                         .memory_limit = (size_t)a->memory_limit};
}

static int show_plan(const plan_args *a, plan_view *v, tsr_plan *plan)
{
    tsri_report *report;
    char source[CLI_SOURCE_MAX];
    if (tsri_report_create(plan, &report) != TSR_OK)
        return cli_fail("plan");
    v->report = report;
    v->limit_is = cli_limit_source(v->experiment, plan->ir.opts.memory_limit, source);
    int code = show(a, v);
    tsri_report_destroy(report);
    return code;
}

/* Tells why no plan keeps a limit, what would, and what the plan without the limit is. */
static int refuse(const plan_args *a, plan_view *v, const tsri_program *program,
                  tsr_compile_opts opts)
{
    const cli_fits fits = {v->path,       a->sets.n, a->sets.items,
                           v->experiment, &opts,     tsr_world_size(program->world),
                           false};
    plan_tried fitting[PLAN_FITS_MOST];
    tsr_plan *plan;
    int code = cli_fail("plan");
    cli_say_limit_source(v->experiment, opts.memory_limit);
    v->nfitting = cli_say_what_fits(&fits, fitting);
    v->fitting = fitting;
    v->refused_limit = opts.memory_limit;
    opts.memory_limit = 0;
    if (v->refused_limit && !a->json && !a->dot && !a->html && !a->full && !a->verbose &&
        tsr_compile_with(program->graph, &opts, &plan) == TSR_OK) {
        show_plan(a, v, plan);
        tsr_plan_destroy(plan);
    }
    return code;
}

static int plan_and_show(const plan_args *a, const char *path, tsri_program *program,
                         const cli_links *links, tsr_compile_opts opts)
{
    const plan_source from = source_of(a, path);
    plan_view view = {.path = path,
                      .from = &from,
                      .experiment = program->experiment,
                      .links = links,
                      .has_cluster = tsri_experiment_cluster(program->experiment) != NULL,
                      .verbose = a->verbose};
    tsr_plan *plan;
    if (opts.memory_limit) /* the search within a limit may take long */
        cli_progress_begin("planning");
    tsr_status status = tsr_compile_with(program->graph, &opts, &plan);
    cli_progress_end();
    if (status == TSR_ERR_NO_MEMORY)
        return refuse(a, &view, program, opts);
    if (status != TSR_OK)
        return cli_fail("plan");
    int code = show_plan(a, &view, plan);
    tsr_plan_destroy(plan);
    return code;
}

static int work(const plan_args *a, const char *path, const tsri_experiment *e, tsr_world *world)
{
    cli_links links;
    tsri_program *program;
    tsr_compile_opts compile = *TSR_COMPILE_OPTS(.alternatives = true);
    tsri_experiment_fill(e, &compile);
    if (a->memory_limit)
        compile.memory_limit = (size_t)a->memory_limit;
    cli_links_find(tsri_experiment_device(e), &links);
    cli_links_fill(&links, tsri_experiment_cluster(e), &compile);
    const tsri_program_opts opts = {.no_data = true, .compile = &compile};
    if (tsri_program_build(e, world, &opts, &program) != TSR_OK)
        return cli_fail("plan");
    int code = plan_and_show(a, path, program, &links, compile);
    tsri_program_destroy(program);
    return code;
}

/* The questions that take other ways than a plan that is shown; -1: none is asked. */
static int ask(const plan_args *a, int n, char *const *paths)
{
    const plan_source from = source_of(a, paths[0]);
    const plan_sweep sweep = {&a->sweeps, a->fixed, a->csv, a->best, a->verbose};
    const char *asked = n > 1 ? "a comparison" : a->sweeps.n ? "--sweep" : a->why ? "--why" : NULL;
    const char *useless = a->json                            ? "json"
                          : a->dot                           ? "dot"
                          : a->html                          ? "html"
                          : a->why && (n > 1 || a->sweeps.n) ? "why"
                          : n > 1 && a->sweeps.n             ? "sweep"
                                                             : NULL;
    if (asked && useless)
        return cli_bad_usage(&spec, "%s is told as text: there is no use for --%s beside it", asked,
                             useless);
    if ((a->sweeps.n || a->why) && !strcmp(paths[0], "-"))
        return cli_bad_usage(&spec, "%s reads its file again: that can't be standard input", asked);
    if (!a->sweeps.n && (a->fixed || a->csv || a->best))
        return cli_bad_usage(&spec, "--%s needs a --sweep",
                             a->fixed ? "fixed"
                             : a->csv ? "csv"
                                      : "best");
    return n > 1         ? plan_compare(&from, n, paths)
           : a->sweeps.n ? plan_sweep_run(&from, &sweep)
           : a->why      ? plan_why(&from, a->why)
                         : -1;
}

static int plan_file(const plan_args *a, const char *path)
{
    tsri_experiment *e = NULL;
    tsr_world *world = NULL;
    int code = -1;
    if (tsri_experiment_load_for(path, (int)a->ranks, a->sets.n, a->sets.items, &e) != TSR_OK)
        code = cli_fail("plan");
    if (code < 0) {
        int ranks = a->ranks ? (int)a->ranks : tsri_experiment_nranks(e);
        code = tsr_world_create_virtual(ranks, 0, &world) != TSR_OK ? cli_fail("plan")
                                                                    : work(a, path, e, world);
    }
    tsr_world_destroy(world);
    tsri_experiment_destroy(e);
    return code;
}

int cli_plan(int argc, char **argv)
{
    plan_args a = {0};
    int n, code = cli_parse(&spec, argc, argv, &a, &n);
    cli_forbid_plugins(a.no_plugins);
    if (code < 0 && a.compare && !a.html)
        code = cli_bad_usage(&spec, "--compare needs --html");
    if (code < 0)
        code = ask(&a, n, argv + 1);
    if (code < 0) {
        a.plans = a.compare ? cJSON_CreateArray() : NULL;
        code = plan_file(&a, argv[1]);
        if (code == CLI_OK && a.compare)
            code = plan_file(&a, a.compare);
        cJSON_Delete(a.plans);
    }
    cli_args_finish(&spec, &a);
    return code;
}
