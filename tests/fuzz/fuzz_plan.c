/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiments down to their plans, in virtual worlds, by the compiler's own checks after each pass
 * (TESSERA_CHECK). A plan that is refused says why. Two ranks that plan the same file, one of them
 * from the dump of it, declare the same program and make plans that communicate in the same order;
 * and what one rank says of the other's memory is what the other one counts. All that
 * `tessera plan` prints of a plan can be printed: its JSON parses, is UTF-8, and holds no NaN.
 * For some plans the test also asks for the other signatures of a tensor (`--why`).
 *
 * Inputs of many ranks or many ops are left to fuzz_yaml, so that a plan takes about a millisecond;
 * the bound on ops is lowest where a memory limit is given, as that search may take seconds.
 */
#include <tessera/world.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/cli/plan/ask.h"
#include "src/exec/exec.h"
#include "src/plan/agree.h"
#include "src/plan/pass/pass.h"
#include "src/plan/price/price.h"
#include "src/rewrite/rewrite.h"
#include "tests/fuzz/experiment.h"

enum {
    MOST_RANKS = 8,
    MOST_POSITIONS = 32, /* of a recurrent layer */
    MOST_OPS = 120,
    MOST_OPS_LIMIT = 24, /* within a limit of memory */
    MOST_OPS_WHY = 24,
    ONE_IN_WHY = 16, /* of the plans */
};

/* A rank's program and plan. */
typedef struct planned {
    tsr_world *world;
    tsri_program *program;
    tsr_compile_opts opts;
    cli_links links;
    tsr_status status; /* of the compile */
    char error[2000];
    tsr_plan *plan; /* NULL: refused */
} planned;

/* Builds and compiles; false where the program can't be built, or is too large. */
static bool plan_experiment(const tsri_experiment *e, int rank, planned *p)
{
    const tsri_program_opts opts = {.no_data = true};
    *p = (planned){0};
    FUZZ_MUST(tsr_world_create_virtual(tsri_experiment_nranks(e), rank, &p->world) == TSR_OK,
              "world");
    tsr_status status = tsri_program_build(e, p->world, &opts, &p->program);
    FUZZ_MUST_TELL(status);
    if (status != TSR_OK)
        return false;
    p->opts = *TSR_COMPILE_OPTS(.alternatives = true);
    tsri_experiment_fill(e, &p->opts);
    if (p->program->graph->nops > (p->opts.memory_limit ? MOST_OPS_LIMIT : MOST_OPS))
        return false;
    cli_links_find(tsri_experiment_device(e), &p->links);
    cli_links_fill(&p->links, tsri_experiment_cluster(e), &p->opts);
    p->status = tsr_compile_with(p->program->graph, &p->opts, &p->plan);
    FUZZ_MUST_TELL(p->status);
    FUZZ_MUST((p->status == TSR_OK) == (p->plan != NULL), "status %d", (int)p->status);
    FUZZ_MUST(p->status != TSR_ERR_INTERNAL, "a pass broke its word");
    snprintf(p->error, sizeof p->error, "%s", p->plan ? "" : tsr_last_error());
    return true;
}

static void drop_planned(planned *p)
{
    tsr_plan_destroy(p->plan);
    tsri_program_destroy(p->program);
    tsr_world_destroy(p->world);
}

/* --- two ranks -------------------------------------------------------------------------------- */
static void check_programs(const planned *a, const planned *b)
{
    const tsri_program_view x = {a->program->graph, &a->opts}, y = {b->program->graph, &b->opts};
    for (int k = 0; k < TSRI_PART_KINDS; k++) {
        const tsri_part_kind kind = (tsri_part_kind)k;
        const int n = tsri_part_count(&x, kind);
        FUZZ_MUST(n == tsri_part_count(&y, kind), "part %d", k);
        for (int i = 0; i < n; i++) {
            char text[TSRI_PART_TEXT], other[TSRI_PART_TEXT];
            if (tsri_part_hash(&x, kind, i) == tsri_part_hash(&y, kind, i))
                continue;
            tsri_part_text(&x, kind, i, text);
            tsri_part_text(&y, kind, i, other);
            FUZZ_MUST(false, "part %d of kind %d:\n%s\n---\n%s", i, k, text, other);
        }
    }
}

/* The bytes that rank 0's plan reports of another rank are those that this rank's own plan takes.
 */
static void check_memory(const tsri_report *r, tsr_plan *other)
{
    const int m = r->memory_of[other->ir.world->rank];
    const tsr_plan_info *info = &other->info;
    size_t variables, ports, values;
    FUZZ_MUST(tsri_plan_rank_bytes(&other->ir, other->ir.world->rank, &variables, &ports,
                                   &values) == TSR_OK,
              "bytes");
    FUZZ_MUST(variables == info->variable_bytes &&
                  values + info->scratch_bytes == info->activation_bytes,
              "%zu and %zu bytes, but %zu and %zu", variables, values, info->variable_bytes,
              info->activation_bytes);
    if (m >= 0 && r->memory[m].exact) /* scratch: that of rank 0's kernels */
        FUZZ_MUST(r->memory[m].total - r->memory[m].scratch == variables + ports + values,
                  "%llu bytes, but %zu, %zu, %zu", (unsigned long long)r->memory[m].total,
                  variables, ports, values);
}

/* A report tells what the busiest rank reads, whatever rank makes it. */
static void check_bytes(const tsri_report *r, tsr_plan *other)
{
    tsri_report *its = NULL;
    FUZZ_MUST(tsri_report_create(other, &its) == TSR_OK, "report");
    FUZZ_MUST(its->bytes == r->bytes, "%llu bytes, but %llu", (unsigned long long)r->bytes,
              (unsigned long long)its->bytes);
    tsri_report_destroy(its);
}

static void check_plans(const tsr_plan *a, const tsr_plan *b)
{
    FUZZ_MUST(tsri_plan_order_hash(&a->ir) == tsri_plan_order_hash(&b->ir), "another order");
    FUZZ_MUST(a->ir.nitems == b->ir.nitems && a->ir.nvalues == b->ir.nvalues &&
                  a->ir.nentries == b->ir.nentries,
              "%d and %d items", a->ir.nitems, b->ir.nitems);
    FUZZ_MUST(a->info.step_s == b->info.step_s && a->info.cost_s == b->info.cost_s, "%g and %g",
              a->info.step_s, b->info.step_s);
}

/* --- what is said of a plan ------------------------------------------------------------------- */
static bool is_utf8(const char *text)
{
    for (const uint8_t *p = (const uint8_t *)text; *p;) {
        const int more = *p < 0x80       ? 0
                         : *p >> 5 == 6  ? 1
                         : *p >> 4 == 14 ? 2
                         : *p >> 3 == 30 ? 3
                                         : 9;
        p++;
        for (int i = 0; i < more; i++, p++)
            if (more == 9 || *p >> 6 != 2)
                return false;
    }
    return true;
}

/* cJSON prints a number that is none as null, which nothing else is. */
static void check_numbers(const cJSON *json)
{
    FUZZ_MUST(!cJSON_IsNull(json) && !cJSON_IsInvalid(json), "%s is no number",
              json->string ? json->string : "an entry");
    for (const cJSON *child = json->child; child; child = child->next)
        check_numbers(child);
}

static void check_json(const plan_view *v)
{
    cJSON *json = plan_make_json(v);
    FUZZ_MUST(json, "no JSON");
    char *text = cJSON_PrintUnformatted(json);
    FUZZ_MUST(text && is_utf8(text), "%s", text);
    cJSON *again = cJSON_Parse(text);
    FUZZ_MUST(again, "%s", text);
    check_numbers(again);
    cJSON_Delete(again);
    cJSON_Delete(json);
    free(text);
}

/* Texts go to stdout: what is printed until end_text is looked at in place of it. */
typedef struct printed {
    FILE *out, *err; /* that were there */
    FILE *f, *g;
    char *text, *errors;
    size_t size, errors_size;
} printed;

static void begin_text(printed *p)
{
    *p = (printed){.out = stdout, .err = stderr};
    p->f = open_memstream(&p->text, &p->size);
    p->g = open_memstream(&p->errors, &p->errors_size);
    if (!p->f || !p->g)
        abort();
    stdout = p->f;
    stderr = p->g;
}

static void end_text(printed *p)
{
    stdout = p->out;
    stderr = p->err;
    fclose(p->f);
    fclose(p->g);
}

static void drop_text(printed *p)
{
    free(p->text);
    free(p->errors);
}

static void check_texts(const plan_view *v)
{
    printed p;
    begin_text(&p);
    const bool screen = plan_print_screen(v), full = plan_print_full(v);
    const bool dot = plan_write_dot(v, stdout);
    end_text(&p);
    FUZZ_MUST(screen && full && dot && p.size && !p.errors_size, "%s", p.errors);
    FUZZ_MUST(is_utf8(p.text), "%s", p.text);
    drop_text(&p);
}

static void check_strategy(const tsri_report *r)
{
    FUZZ_MUST(r->strategy.words && r->strategy.words[0], "no words");
    for (int s = 0; s < r->strategy.nstages; s++)
        for (int i = 0; i < r->strategy.stages[s].naxes; i++)
            FUZZ_MUST(r->strategy.stages[s].axis[i].words, "no words of an axis");
}

static void check_figures(const tsri_report *r)
{
    const tsr_plan_info *info = &r->plan->info;
    FUZZ_MUST(info->bound_s <= info->cost_s * (1 + 1e-5), "%g above %g", info->bound_s,
              info->cost_s);
    FUZZ_MUST(r->step_s >= 0 && isfinite(r->step_s), "%g s", r->step_s);
    FUZZ_MUST(fabs(r->step_s - info->step_s) <= 1e-5 * info->step_s, "%g s, but %g", r->step_s,
              info->step_s);
    if (r->plan->ir.opts.memory_limit)
        FUZZ_MUST(r->memory[0].total <= r->plan->ir.opts.memory_limit, "%llu bytes of %zu",
                  (unsigned long long)r->memory[0].total, r->plan->ir.opts.memory_limit);
}

/* A plan that is priced anew for its own links takes what it took. There are items that a pricer
 * refuses. */
static void check_price(const tsri_report *r, const tsr_graph *g)
{
    tsr_graph *copy;
    tsri_pricer *pricer = NULL;
    tsri_price price;
    const int rank = r->memory[0].rank;
    FUZZ_MUST(tsri_compile_copy(g, &r->plan->ir.opts, &copy) == TSR_OK, "a copy");
    const tsri_price_sizes sizes = {.graph = {copy}};
    const tsr_status status = tsri_pricer_create(r->plan, &sizes, 1, &rank, &pricer);
    tsri_graph_copy_free(copy);
    FUZZ_MUST_TELL(status);
    FUZZ_MUST(status == TSR_OK || status == TSR_ERR_UNSUPPORTED, "a pricer");
    if (status != TSR_OK)
        return;
    FUZZ_MUST(tsri_pricer_price(pricer, &r->plan->ir.model, 0, &price) == TSR_OK, "a price");
    FUZZ_MUST(fabs(price.step_s - r->step_s) <= 1e-6 * r->step_s && price.bytes == r->bytes,
              "%g s and %llu bytes, but %g and %llu", price.step_s, (unsigned long long)price.bytes,
              r->step_s, (unsigned long long)r->bytes);
    tsri_pricer_destroy(pricer);
}

static void check_report(const fuzz_experiment *x, const planned *a, tsr_plan *other)
{
    tsri_report *r = NULL;
    FUZZ_MUST(tsri_report_create(a->plan, &r) == TSR_OK, "report");
    FUZZ_MUST(tsr_plan_explain(a->plan), "explain");
    char source[CLI_SOURCE_MAX];
    const plan_view v = {.path = "f.yaml",
                         .limit_is = cli_limit_source(x->e, a->opts.memory_limit, source),
                         .report = r,
                         .experiment = x->e,
                         .links = &a->links,
                         .has_cluster = tsri_experiment_cluster(x->e) != NULL};
    check_figures(r);
    check_strategy(r);
    check_memory(r, other);
    check_bytes(r, other);
    check_price(r, a->program->graph);
    check_json(&v);
    check_texts(&v);
    tsri_report_destroy(r);
}

/* --- why -------------------------------------------------------------------------------------- */
/* Asks for a tensor's other signatures, each of which is planned. */
static void check_why(const fuzz_experiment *x, const planned *a, unsigned which)
{
    char path[64];
    plan_names names;
    int file = memfd_create("f.yaml", 0);
    FUZZ_MUST(file >= 0 && write(file, x->text, x->size) == (ssize_t)x->size, "memfd");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    FUZZ_MUST(plan_names_make(a->program, &names) == TSR_OK, "names");
    const plan_source from = {.path = path, .nsets = x->nsets, .sets = x->sets};
    const plan_name *name = &names.all[which % (unsigned)names.n];
    printed p;
    begin_text(&p);
    const int code = plan_why(&from, name->label);
    end_text(&p);
    FUZZ_MUST(code == CLI_OK ? p.size > 0 : p.errors_size > 0, "--why %s: %d", name->label, code);
    drop_text(&p);
    plan_names_finish(&names);
    close(file);
}

/* --- the whole -------------------------------------------------------------------------------- */
/* Plans the experiment on rank 0, and its dump on another one. */
static void check_plan(const fuzz_experiment *x, unsigned which)
{
    planned a, b;
    tsri_experiment *again = NULL;
    size_t size;
    bool planned_both = plan_experiment(x->e, 0, &a);
    if (planned_both) {
        char *dump = fuzz_experiment_dump(x->e, &size);
        FUZZ_MUST(tsri_experiment_parse("f.yaml", dump, size, 0, NULL, &again) == TSR_OK,
                  "the dump doesn't parse:\n%s", dump);
        const int rank = (int)(which % (unsigned)tsri_experiment_nranks(again));
        FUZZ_MUST(plan_experiment(again, rank, &b), "the dump can't be built:\n%s", dump);
        FUZZ_MUST(a.status == b.status, "%d, but %d:\n%s\n%s\n%s", (int)a.status, (int)b.status,
                  a.error, b.error, dump);
        check_programs(&a, &b);
        free(dump);
    }
    if (planned_both && a.plan) {
        check_plans(a.plan, b.plan);
        check_report(x, &a, b.plan);
        if (which / MOST_RANKS % ONE_IN_WHY == 0 && a.program->graph->nops <= MOST_OPS_WHY)
            check_why(x, &a, which / MOST_RANKS / ONE_IN_WHY);
    }
    drop_planned(&a);
    if (planned_both)
        drop_planned(&b);
    tsri_experiment_destroy(again);
}

/* FNV-1a (Fowler, Noll, Vo): draws what an input does not say. */
static unsigned hash_input(const uint8_t *data, size_t size)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < size; i++)
        h = (h ^ data[i]) * 16777619u;
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    setenv("TESSERA_CHECK", "1", 1);
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* no figures of this machine */
    fuzz_experiment x = fuzz_experiment_parse(data, size);
    if (x.e && tsri_experiment_nranks(x.e) <= MOST_RANKS &&
        !fuzz_experiment_unrolls(&x, MOST_POSITIONS))
        check_plan(&x, hash_input(data, size));
    fuzz_experiment_drop(&x);
    return 0;
}
