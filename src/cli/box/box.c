/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera box`: how a tensor gets from one signature to another. */
#include "src/cli/box/box.h"
#include "placement/placement.h"
#include "src/cli/links.h"
#include "src/cli/plan/plan.h"
#include "src/cli/options.h"
#include "src/cli/page/moves.h"
#include "src/cli/page/page.h"
#include "src/cli/page/pieces.h"
#include "src/core/dims.h"

#include <tessera/graph.h>

#include <cjson/cJSON.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20, MANY_RANKS = 2048 };

typedef struct box_args {
    const char *shape, *from, *to, *dtype, *cluster;
    int64_t ranks;
    const char *html;
    bool run, json, zero_latency;
} box_args;

#define AT(field) offsetof(box_args, field)
static const cli_option options[] = {
    {"shape", 's', CLI_TEXT, AT(shape), "N,N,...", "global shape; \"\" is a scalar", 0, 0, NULL},
    {"from", 'f', CLI_TEXT, AT(from), "END", "where it is, as PLACEMENT SIGNATURE", 0, 0, NULL},
    {"to", 't', CLI_TEXT, AT(to), "END",
     "where it shall be; a signature alone: on the\nplacement of --from", 0, 0, NULL},
    {"dtype", 'd', CLI_TEXT, AT(dtype), "TYPE", "f32 (default), f16, bf16, f64, i64, i32, u8, bool",
     0, 0, NULL},
    {"ranks", 'n', CLI_INT, AT(ranks), "N", "ranks of the world, for \"cpu\" without a list", 1,
     MAX_RANKS, "a number of ranks"},
    {"cluster", 'c', CLI_TEXT, AT(cluster), "CLUSTER",
     "whose figures count, as h100-sxm:16x8; default:\nthis machine's, or usual ones of GPUs", 0, 0,
     NULL},
    {"run", 'r', CLI_FLAG, AT(run), NULL, "do it on thread ranks and check values and bytes", 0, 0,
     NULL},
    {"zero-latency", 0, CLI_FLAG, AT(zero_latency), NULL, "as if a hand-shake took no time", 0, 0,
     NULL},
    {"html", 0, CLI_TEXT, AT(html), "FILE", "writes a page for a browser", 0, 0, NULL},
    {"json", 'j', CLI_FLAG, AT(json), NULL, "print JSON", 0, 0, NULL},
};
#undef AT

static const cli_spec spec = {
    .command = "box",
    .usage = "--shape N,N,... --from END --to END [OPTIONS]",
    .about = "Finds the cheapest way of a tensor from one placement and signature to another,\n"
             "and draws who holds what.\n"
             "\n"
             "  tessera box -s 8,6 -f 'cpu:[0,1,2,3] S(0)' -t 'cpu:[[0,1],[2,3]] (B,S(1))'",
    CLI_OPTIONS(options),
};

/* --- the command line ------------------------------------------------------------------------- */
static bool parse_shape(const char *text, tsr_dims *out_shape)
{
    tsr_dims d = {0};
    const char *p = text;
    while (isspace((unsigned char)*p))
        p++;
    while (*p) {
        char *end;
        long long n = strtoll(p, &end, 10);
        if (end == p || n < 0 || d.ndim == TSR_MAX_NDIM || (*end && *end != ',' && *end != 'x'))
            return false;
        d.d[d.ndim++] = n;
        p = *end ? end + 1 : end;
        if (*end && !*p)
            return false;
    }
    *out_shape = d;
    return true;
}

/* The largest number inside brackets, plus one. */
static int64_t ranks_named(const char *text)
{
    int64_t most = 0;
    int depth = 0;
    for (const char *p = text; *p; p++) {
        depth += (*p == '[') - (*p == ']');
        if (depth > 0 && isdigit((unsigned char)*p)) {
            int64_t v = 0;
            for (; isdigit((unsigned char)*p); p++)
                v = v < MAX_RANKS ? v * 10 + *p - '0' : v;
            p--;
            most = v + 1 > most ? v + 1 : most;
        }
    }
    return most;
}

static bool starts_with_device(const char *text)
{
    bool starts = false;
    for (int i = 0; tsri_target_names[i]; i++)
        starts |= !strncmp(text, tsri_target_names[i], strlen(tsri_target_names[i]));
    return starts;
}

/* Where the signature starts: behind the last ']', or behind the device's name. `fallback`: what
 * a signature alone stands on; NULL: nothing. */
static tsr_status parse_end(tsr_world *world, const char *what, const char *text,
                            const tsr_placement *fallback, box_end *out_end)
{
    const char *close = strrchr(text, ']');
    bool named = close || starts_with_device(text);
    size_t split = close ? (size_t)(close + 1 - text) : named ? strcspn(text, " \t") : 0;
    bool ends = !text[split + strspn(text + split, " \t")];
    if (ends || (!named && !fallback))
        return tsr_set_error(TSR_ERR_FORMAT,
                             "%s '%s' has no %s: expected PLACEMENT SIGNATURE, as in 'cpu:[0,1] "
                             "S(0)'",
                             what, text, ends ? "signature" : "placement");
    out_end->placement = fallback;
    if (split) {
        char place[1 << 16];
        if (split >= sizeof place)
            return tsr_set_error(TSR_ERR_FORMAT, "%s: a placement of %zu characters", what, split);
        memcpy(place, text, split);
        place[split] = 0;
        out_end->placement = tsr_placement_parse(world, place);
        if (!out_end->placement)
            return TSR_ERR_PLACEMENT;
    }
    return tsr_sbp_parse(text + split, &out_end->sbp);
}

/* Whether both ends are legal: the library's own word. */
static tsr_status check(const box *b)
{
    tsr_graph *g = tsr_graph_create(b->world, NULL);
    TSRI_NEED(g);
    tsr_tensor *x =
        tsr_from_local_at(g, "x", b->dtype, b->shape, b->from.placement, b->from.sbp, NULL, 0);
    tsr_to_global_at(x, b->to.placement, b->to.sbp, NULL, 0);
    if (b->to.sbp.ndim == 0)
        tsr_output_at(g, "y", NULL, NULL, b->to.sbp, NULL, 0);
    tsr_status status = tsr_graph_status(g);
    tsr_graph_destroy(g);
    return status;
}

/* Returns the kind of the first end that is not on the host, else the host: as a plan is priced. */
static tsr_device kind_of(const box *b)
{
    const bool from_host = tsri_placement_can(b->from.placement, TSRI_CAN_HOST_MEMORY);
    return tsr_placement_device(from_host ? b->to.placement : b->from.placement);
}

static tsr_status find_figures(box *b, const box_args *a)
{
    cli_links links;
    tsri_cluster cluster = {0};
    if (a->cluster)
        TSRI_TRY(tsri_cluster_parse(&b->pool, "--cluster", a->cluster, b->nranks, &cluster));
    cli_links_find(cluster.gpu ? tsri_cluster_device(&cluster) : kind_of(b), &links);
    b->opts = *TSR_COMPILE_OPTS();
    cli_links_fill(&links, &cluster, &b->opts);
    return TSR_OK;
}

static tsr_status prepare(box *b, const box_args *a)
{
    TSRI_TRY(tsr_world_create_virtual(b->nranks, 0, &b->world));
    TSRI_TRY(parse_end(b->world, "--from", a->from, NULL, &b->from));
    TSRI_TRY(parse_end(b->world, "--to", a->to, b->from.placement, &b->to));
    if (b->to.sbp.ndim == 0 || b->from.sbp.ndim == 0)
        return tsr_set_error(TSR_ERR_SBP, "a conversion needs both signatures said, not auto");
    TSRI_TRY(check(b));
    TSRI_TRY(find_figures(b, a));
    for (int i = 0; i < b->opts.nlinks && a->zero_latency; i++)
        b->opts.link[i].latency_s = 0;
    b->model = cli_links_model(&b->opts, kind_of(b));
    b->query = (tsri_route_query){.shape = b->shape,
                                  .element = tsr_dtype_size(b->dtype),
                                  .from = {.mesh = tsri_mesh_of(b->from.placement)},
                                  .to = {.mesh = tsri_mesh_of(b->to.placement)}};
    b->query.from.layout = tsri_layout_of(&b->query.from.mesh, b->from.sbp);
    b->query.to.layout = tsri_layout_of(&b->query.to.mesh, b->to.sbp);
    TSRI_TRY(tsri_route_find(&b->model, &b->query, &b->route));
    b->nothers = tsri_route_others(&b->model, &b->query, &b->route, BOX_OTHERS, b->other);
    return TSR_OK;
}

/* --- what a step is --------------------------------------------------------------------------- */
/* Over all ranks; -1 where there are too many to ask. */
static int64_t total_bytes(const box *b, const tsri_route_step *s)
{
    int64_t sum = 0;
    if (b->nranks > MANY_RANKS)
        return -1;
    for (int r = 0; r < b->nranks; r++)
        sum += tsri_step_bytes(&b->query, s, r);
    return sum;
}

static int group_size(const box *b, const tsri_route_step *s, int *out_groups)
{
    const tsri_mesh *from = &b->query.from.mesh, *m = s->on_dst ? &b->query.to.mesh : from;
    int size = 1;
    if (s->crosses) {
        size = from->nranks;
        for (int i = 0; i < b->query.to.mesh.nranks; i++)
            size += tsri_mesh_find(from, tsri_mesh_rank(&b->query.to.mesh, i)) < 0;
        *out_groups = 1;
        return size;
    }
    for (int d = 0; d < m->ndim; d++)
        if (s->dims >> d & 1)
            size *= m->dim[d];
    *out_groups = m->nranks / size;
    return size;
}

/* The farthest link that ranks of a group meet over, as a plan's report has it; -1: nothing is
 * sent.
 */
static int link_of(const box *b, const tsri_route_step *s)
{
    const tsri_mesh *from = &b->query.from.mesh, *m = s->on_dst ? &b->query.to.mesh : from;
    int first = tsri_mesh_rank(m, 0), link = -1;
    if (!tsri_box_is_collective(s->kind))
        return -1;
    for (int i = 0; i < b->query.to.mesh.nranks && s->crosses; i++) {
        int far = tsri_link_between(&b->model, first, tsri_mesh_rank(&b->query.to.mesh, i));
        link = far > link ? far : link;
    }
    for (int d = 0, stride = m->nranks; d < m->ndim && !s->crosses; d++) {
        stride /= m->dim[d];
        int last = tsri_mesh_rank(m, stride * (m->dim[d] - 1));
        int far = s->dims >> d & 1 ? tsri_link_between(&b->model, first, last) : -1;
        link = far > link ? far : link;
    }
    return link;
}

static const char *name_of(const tsri_route_step *s)
{
    return s->kind == TSRI_BOX_ALL_REDUCE && s->two_phase ? "all_reduce (2 phases)"
                                                          : tsri_box_kind_name(s->kind);
}

static char *dims_text(const tsri_route_step *s, char buf[24])
{
    int n = snprintf(buf, 24, s->crosses ? "both ends" : "dim");
    for (int d = 0; d < TSR_MAX_HIERARCHY && !s->crosses; d++)
        if (s->dims >> d & 1)
            n += snprintf(buf + n, 24 - (size_t)n, "%s%d", n > 3 ? "," : " ", d);
    return buf;
}

/* --- text ------------------------------------------------------------------------------------- */
static bool print_end(const box *b, const char *what, const box_end *end, const tsri_end *at,
                      const cli_style *style)
{
    char sbp[TSR_SBP_TEXT_MAX];
    plan_text place = {.used = 0};
    plan_put_placement(&place, end->placement);
    cli_say("%s%s%s %s on %s\n", style->bold, what, style->plain, tsr_sbp_format(end->sbp, sbp),
            place.data);
    return box_draw(stdout, b->shape, at);
}

static void print_route(const box *b, const cli_style *style)
{
    const tsri_route *r = &b->route;
    char cost[CLI_NUMBER_MAX], bound[CLI_NUMBER_MAX], most[CLI_NUMBER_MAX], all[CLI_NUMBER_MAX];
    char line[256];
    if (r->n == 0) {
        puts("route: nothing to do, every rank has its part");
        return;
    }
    snprintf(line, sizeof line,
             "%d step%s, %s (no route takes less than %s); on the busiest ranks %s read, %s held",
             r->n, r->n > 1 ? "s" : "", cli_seconds(r->cost_s, cost),
             cli_seconds(r->bound_s, bound), cli_bytes((double)r->bytes, most),
             cli_bytes((double)r->peak_bytes, all));
    cli_say("%sroute%s ", style->bold, style->plain);
    cli_wrap(line, 5, 6, cli_columns());
    cli_say("  %-22s %-9s %9s %9s %9s  %s\n", "step", "over", "busiest", "all ranks", "time", "to");
    for (int i = 0; i < r->n; i++) {
        const tsri_route_step *s = &r->step[i];
        char over[24], to[TSRI_LAYOUT_TEXT_MAX], name[TSRI_LINK_NAME_MAX];
        int n, size = group_size(b, s, &n), link = link_of(b, s);
        int64_t total = total_bytes(b, s);
        cli_say("  %-22s %-9s %9s %9s %9s  %s\n", name_of(s), dims_text(s, over),
                cli_bytes((double)s->bytes, most), total < 0 ? "?" : cli_bytes((double)total, all),
                cli_seconds(s->cost_s, cost), tsri_layout_format(&s->to, to));
        if (link >= 0)
            cli_say("    %s%d group%s of %d ranks, %s%s\n", style->dim, n, n > 1 ? "s" : "", size,
                    tsri_link_name(&b->model, link, name), style->plain);
    }
}

static int print_run(const box *b, const box_run *run, const cli_style *style)
{
    bool same = true;
    for (int r = 0; r < b->nranks; r++)
        same &= run->read[r] == run->planned[r];
    cli_say("%srun%s on %d thread rank%s\n", style->bold, style->plain, b->nranks,
            b->nranks > 1 ? "s" : "");
    cli_say("  %6s %16s %16s\n", "rank", "bytes read", "planned");
    for (int r = 0; r < b->nranks; r++)
        if (b->nranks <= 16 || run->read[r] != run->planned[r])
            cli_say("  %6d %16" PRIu64 " %16" PRIu64 "%s\n", r, run->read[r], run->planned[r],
                    run->read[r] == run->planned[r] ? "" : "  <- differs");
    if (b->nranks > 16 && same)
        cli_say("  every rank read what was planned\n");
    if (run->wrong[0])
        cli_say("  %sdiffers from the definition%s: %s\n", style->red, style->plain, run->wrong);
    else
        cli_say("  %svalues are those of the definition%s (%lld compared)\n", style->green,
                style->plain, (long long)run->elements);
    return same && !run->wrong[0] ? CLI_OK : CLI_FAILED;
}

/* --- JSON ------------------------------------------------------------------------------------- */
static cJSON *json_dims(tsr_dims d)
{
    double values[TSR_MAX_NDIM];
    for (int i = 0; i < d.ndim; i++)
        values[i] = (double)d.d[i];
    return cJSON_CreateDoubleArray(values, d.ndim);
}

static cJSON *json_pieces(const box *b, page_splits *splits, const tsri_mesh *mesh,
                          const tsri_layout *layout)
{
    return b->nranks <= MANY_RANKS ? page_pieces(splits, b->shape, mesh, layout)
                                   : cJSON_CreateArray();
}

static cJSON *json_end(const box *b, const box_end *end, const tsri_end *at, page_splits *splits)
{
    cJSON *json = cJSON_CreateObject(), *parts = cJSON_CreateArray();
    char sbp[TSR_SBP_TEXT_MAX];
    cJSON_AddStringToObject(json, "placement", tsr_placement_text(end->placement));
    cJSON_AddStringToObject(json, "sbp", tsr_sbp_format(end->sbp, sbp));
    cJSON_AddItemToObject(json, "hierarchy", cJSON_CreateIntArray(at->mesh.dim, at->mesh.ndim));
    for (int i = 0; i < at->mesh.nranks && b->nranks <= MANY_RANKS; i++) {
        cJSON *part = cJSON_CreateObject();
        tsr_dims shape, offset = {.ndim = b->shape.ndim};
        tsri_layout_part(b->shape, &at->mesh, &at->layout, i, offset.d, &shape);
        cJSON_AddNumberToObject(part, "rank", tsri_mesh_rank(&at->mesh, i));
        cJSON_AddItemToObject(part, "offset", json_dims(offset));
        cJSON_AddItemToObject(part, "shape", json_dims(shape));
        cJSON_AddItemToArray(parts, part);
    }
    cJSON_AddItemToObject(json, "parts", parts);
    cJSON_AddItemToObject(json, "pieces", json_pieces(b, splits, &at->mesh, &at->layout));
    return json;
}

/* The bytes that ranks read from each other; NULL where nothing is sent, or groups are large. */
static cJSON *json_move(const box *b, const tsri_route_step *s)
{
    tsri_pool pool;
    page_move m;
    cJSON *json = NULL;
    tsri_pool_init(&pool, NULL);
    if (tsri_box_is_collective(s->kind) && page_move_init(&pool, &b->query, s, &m) == TSR_OK &&
        page_move_add(&pool, &b->query, s, &m) == TSR_OK)
        json = page_move_json(&m);
    tsri_pool_finish(&pool);
    return json;
}

cJSON *box_step_json(const box *b, const tsri_route_step *s)
{
    cJSON *json = cJSON_CreateObject(), *dims = cJSON_CreateArray();
    char text[TSRI_LAYOUT_TEXT_MAX];
    int groups, size = group_size(b, s, &groups);
    int64_t total = total_bytes(b, s);
    for (int d = 0; d < TSR_MAX_HIERARCHY; d++)
        if (s->dims >> d & 1)
            cJSON_AddItemToArray(dims, cJSON_CreateNumber(d));
    cJSON_AddStringToObject(json, "kind", tsri_box_kind_name(s->kind));
    cJSON_AddBoolToObject(json, "two_phase", s->two_phase);
    cJSON_AddItemToObject(json, "dims", dims);
    cJSON_AddBoolToObject(json, "crosses", s->crosses);
    cJSON_AddBoolToObject(json, "on_destination", s->on_dst);
    cJSON_AddNumberToObject(json, "groups", groups);
    cJSON_AddNumberToObject(json, "group_size", size);
    if (link_of(b, s) >= 0)
        cJSON_AddStringToObject(json, "link", tsri_link_name(&b->model, link_of(b, s), text));
    cJSON_AddStringToObject(json, "from", tsri_layout_format(&s->from, text));
    cJSON_AddStringToObject(json, "to", tsri_layout_format(&s->to, text));
    cJSON_AddNumberToObject(json, "bytes_busiest_rank", (double)s->bytes);
    if (total >= 0)
        cJSON_AddNumberToObject(json, "bytes_all_ranks", (double)total);
    cJSON_AddNumberToObject(json, "cost_s", s->cost_s);
    cJSON *move = json_move(b, s);
    if (move)
        cJSON_AddItemToObject(json, "move", move);
    return json;
}

static cJSON *json_run(const box *b, const box_run *run)
{
    cJSON *json = cJSON_CreateObject(), *ranks = cJSON_CreateArray();
    for (int r = 0; r < b->nranks; r++) {
        cJSON *rank = cJSON_CreateObject();
        cJSON_AddNumberToObject(rank, "rank", r);
        cJSON_AddNumberToObject(rank, "bytes_read", (double)run->read[r]);
        cJSON_AddNumberToObject(rank, "bytes_planned", (double)run->planned[r]);
        cJSON_AddItemToArray(ranks, rank);
    }
    cJSON_AddItemToObject(json, "ranks", ranks);
    cJSON_AddNumberToObject(json, "elements_compared", (double)run->elements);
    cJSON_AddBoolToObject(json, "values_right", !run->wrong[0]);
    if (run->wrong[0])
        cJSON_AddStringToObject(json, "difference", run->wrong);
    return json;
}

/* The pieces that ranks hold before and after a step. */
static void add_step_pieces(const box *b, cJSON *json, const tsri_route_step *s,
                            page_splits *splits)
{
    const tsri_mesh *from = &b->query.from.mesh, *to = &b->query.to.mesh;
    cJSON_AddItemToObject(json, "from_pieces",
                          json_pieces(b, splits, s->on_dst && !s->crosses ? to : from, &s->from));
    cJSON_AddItemToObject(json, "to_pieces",
                          json_pieces(b, splits, s->on_dst || s->crosses ? to : from, &s->to));
}

/* NULL without memory. */
static cJSON *make_json(const box *b, const box_run *run)
{
    tsri_pool pool;
    page_splits splits = {.pool = &pool, .json = cJSON_CreateArray()};
    cJSON *json = cJSON_CreateObject(), *steps = cJSON_CreateArray();
    tsri_pool_init(&pool, NULL);
    cJSON_AddItemToObject(json, "shape", json_dims(b->shape));
    cJSON_AddStringToObject(json, "dtype", tsr_dtype_name(b->dtype));
    cJSON_AddItemToObject(json, "from", json_end(b, &b->from, &b->query.from, &splits));
    cJSON_AddItemToObject(json, "to", json_end(b, &b->to, &b->query.to, &splits));
    for (int i = 0; i < b->route.n; i++) {
        cJSON *step = box_step_json(b, &b->route.step[i]);
        add_step_pieces(b, step, &b->route.step[i], &splits);
        cJSON_AddItemToArray(steps, step);
    }
    cJSON_AddItemToObject(json, "steps", steps);
    cJSON_AddItemToObject(json, "splits", splits.json);
    cJSON_AddNumberToObject(json, "cost_s", b->route.cost_s);
    cJSON_AddNumberToObject(json, "bound_s", b->route.bound_s);
    cJSON_AddNumberToObject(json, "bytes_busiest_rank", (double)b->route.bytes);
    cJSON_AddNumberToObject(json, "peak_bytes", (double)b->route.peak_bytes);
    cJSON_AddItemToObject(json, "others", box_others_json(b));
    if (run)
        cJSON_AddItemToObject(json, "run", json_run(b, run));
    tsri_pool_finish(&pool);
    if (!splits.failed)
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* The exit code of a run: whether bytes and values were those expected. */
static int judge(const box *b, const box_run *run)
{
    int code = run && run->wrong[0];
    for (int r = 0; run && r < b->nranks; r++)
        code |= run->read[r] != run->planned[r];
    return code;
}

static int print_as_json(const box *b, const box_run *run)
{
    int printed = cli_print_json(make_json(b, run));
    return printed ? printed : judge(b, run);
}

/* --- the command ------------------------------------------------------------------------------ */
static int print_text(const box *b, const box_run *run)
{
    const cli_style style = cli_style_of(stdout);
    char bytes[CLI_NUMBER_MAX], dims[TSRI_DIMS_TEXT_MAX];
    cli_say("%s[%s], %s\n", tsr_dtype_name(b->dtype), tsri_dims_format(b->shape, dims),
            cli_bytes((double)tsr_dims_count(b->shape) * (double)b->query.element, bytes));
    if (!print_end(b, "from", &b->from, &b->query.from, &style) ||
        !print_end(b, "to", &b->to, &b->query.to, &style)) {
        tsri_fshow(stderr, "tessera box: out of memory\n");
        return CLI_FAILED;
    }
    print_route(b, &style);
    box_print_others(b, &style);
    return run ? print_run(b, run, &style) : CLI_OK;
}

static int show(const box_args *a, const box *b, const box_run *run)
{
    if (a->html && page_write(a->html, "box", "tessera box", make_json(b, run)) != TSR_OK)
        return cli_fail("box");
    return a->json ? print_as_json(b, run) : print_text(b, run);
}

static int work(const box_args *a, box *b)
{
    if (prepare(b, a) != TSR_OK)
        return cli_fail("box");
    if (!a->run)
        return show(a, b, NULL);
    box_run run = {0};
    int code;
    if (box_run_on_threads(b, &run) != TSR_OK)
        code = cli_fail("box");
    else
        code = show(a, b, &run);
    box_run_finish(&run);
    return code;
}

int cli_box(int argc, char **argv)
{
    box_args a = {.dtype = "f32"};
    box b = {0};
    int n, code = cli_parse(&spec, argc, argv, &a, &n);
    if (code >= 0)
        return code;
    if (!a.shape || !a.from || !a.to)
        return cli_bad_usage(&spec, "%s is missing",
                             !a.shape  ? "--shape"
                             : !a.from ? "--from"
                                       : "--to");
    if (!parse_shape(a.shape, &b.shape))
        return cli_bad_usage(&spec, "--shape needs up to %d sizes, like 64,3,32,32, not %s",
                             TSR_MAX_NDIM, a.shape);
    b.dtype = tsr_dtype_parse(a.dtype);
    if (!b.dtype)
        return cli_bad_usage(
            &spec, "--dtype needs f32, f16, bf16, f64, i64, i32, u8 or bool, not %s", a.dtype);
    int64_t from = ranks_named(a.from), to = ranks_named(a.to), most = from > to ? from : to;
    most = a.ranks > most ? a.ranks : most > 0 ? most : 1;
    if (most > MAX_RANKS)
        return cli_bad_usage(&spec, "at most %d ranks", MAX_RANKS);
    b.nranks = (int)most;
    tsri_pool_init(&b.pool, NULL);
    code = work(&a, &b);
    tsr_world_destroy(b.world);
    tsri_pool_finish(&b.pool);
    return code;
}
