/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera run`: runs an experiment on thread ranks, or as one rank under `tessera launch`. */
#include "src/cli/run/run.h"
#include "src/cli/options.h"
#include "src/cli/plan/plan.h"
#include "src/core/new_file.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run_args {
    int64_t ranks, steps, memory_limit;
    cli_list sets;
    const char *out, *html;
    bool no_plugins, trace, json;
} run_args;

#define AT(field) offsetof(run_args, field)
static const cli_option options[] = {
    {"ranks", 'n', CLI_INT, AT(ranks), "N", "ranks, as threads; those that the file names", 1, 256,
     "a number of ranks"},
    {"set", 's', CLI_LIST, AT(sets), "PATH=VALUE",
     "overrides an entry of the file; may be given again", 0, 0, NULL},
    {"steps", 0, CLI_INT, AT(steps), "N", "steps, whatever the file says", 1, INT64_MAX,
     "a number of steps"},
    {"out", 'o', CLI_TEXT, AT(out), "DIR", "writes result.json, NAME.npy and NAME.rankR.npy", 0, 0,
     NULL},
    {"trace", 't', CLI_FLAG, AT(trace), NULL, "writes DIR/trace.json of the last step, for Chrome",
     0, 0, NULL},
    {"memory-limit", 'm', CLI_BYTES, AT(memory_limit), "BYTES", "that a rank may use, like 512M", 0,
     0, NULL},
    {"html", 0, CLI_TEXT, AT(html), "FILE", "writes a page of the run for a browser", 0, 0, NULL},
    {"json", 'j', CLI_FLAG, AT(json), NULL, "print the result as JSON", 0, 0, NULL},
    CLI_NO_PLUGINS(AT(no_plugins)),
};
#undef AT

static const cli_spec spec = {
    .command = "run",
    .usage = "FILE.yaml [OPTIONS]",
    .about = "Runs an experiment: trains its model, or computes its graph. Ranks are threads;\n"
             "under `tessera launch -n N -- tessera run FILE.yaml` each process is one.\n"
             "See tessera-yaml(5).",
    CLI_OPTIONS(options),
    .min_operands = 1,
    .max_operands = 1,
    .missing = "no FILE.yaml to run",
};

/* Whether a file of that name can be written in the folder: said before hours of training. A signal
 * waits meanwhile, as it would leave the temporary behind. */
static int try_file(const char *folder, const char *name)
{
    char path[4096];
    sigset_t all, old;
    tsri_new_file file;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n <= 0 || (size_t)n >= sizeof path)
        return ENAMETOOLONG;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int rc = tsri_new_file_open(&file, path);
    tsri_new_file_drop(&file);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -rc;
}

static int try_page(const char *path)
{
    bool absolute = path[0] == '/';
    int rc = try_file(absolute ? "" : ".", path + absolute);
    if (!rc)
        return CLI_OK;
    tsri_fshow(stderr, "tessera run: %s: %s\n", path, strerror(rc));
    return CLI_FAILED;
}

/* Makes the folder, and finds out whether the files can be written there. */
static int open_folder(const run_job *job)
{
    const char *names[] = {"", "/result.json", "/trace.json"};
    int rc = -tsri_make_folders(job->out, 0777), i = 0;
    for (int n = job->trace ? 2 : 1; !rc && i < n;)
        rc = try_file(job->out, names[++i] + 1);
    if (!rc)
        return CLI_OK;
    tsri_fshow(stderr, "tessera run: %s%s: %s\n", job->out, names[i], strerror(rc));
    return CLI_FAILED;
}

/* As one rank of several processes: the launcher has said which. */
static tsr_status run_as_process(run_job *job, const run_args *a)
{
    tsr_world *world;
    TSRI_TRY(tsr_world_create(NULL, &world));
    tsr_status status;
    if (a->ranks && a->ranks != tsr_world_size(world))
        status = tsr_set_error(TSR_ERR_INVALID, "--ranks is %lld, but the launcher has started %d",
                               (long long)a->ranks, tsr_world_size(world));
    else
        status = run_on_rank(world, job);
    if (status != TSR_OK)
        tsr_world_abort(world, tsr_last_error());
    tsr_world_destroy(world);
    return status;
}

bool run_is_launched(void)
{
    return getenv("RANK") && getenv("WORLD_SIZE");
}

/* The number of ranks that is asked for, by the launcher or by --ranks; 0: none is. */
static int world_size(const run_args *a)
{
    long launched = run_is_launched() ? strtol(getenv("WORLD_SIZE"), NULL, 10) : 0;
    return launched > 0 && launched < INT_MAX ? (int)launched : (int)a->ranks;
}

static int work(const run_args *a, run_job *job)
{
    cli_links links;
    if (job->html && try_page(job->html) != CLI_OK)
        return CLI_FAILED;
    if (job->out && open_folder(job) != CLI_OK)
        return CLI_FAILED;
    cli_links_find(tsri_experiment_device(job->experiment), &links);
    cli_links_fill(&links, tsri_experiment_cluster(job->experiment), &job->opts);
    tsri_experiment_fill(job->experiment, &job->opts);
    if (a->memory_limit)
        job->opts.memory_limit = (size_t)a->memory_limit;
    int ranks = a->ranks ? (int)a->ranks : tsri_experiment_nranks(job->experiment);
    bool is_launched = run_is_launched();
    tsr_status status = is_launched ? run_as_process(job, a) : tsr_spawn(ranks, run_on_rank, job);
    if (status != TSR_OK) {
        int code = cli_fail("run");
        if (status == TSR_ERR_NO_MEMORY)
            cli_say_limit_source(job->experiment, job->opts.memory_limit);
        const cli_fits fits = {job->path,  a->sets.n, a->sets.items, job->experiment,
                               &job->opts, ranks,     true};
        if (status == TSR_ERR_NO_MEMORY && !is_launched)
            cli_say_what_fits(&fits, NULL);
        return code;
    }
    int sig = job->stopped_by ? job->stopped_by : run_stop_signal();
    return sig ? 128 + sig : CLI_OK;
}

int cli_run(int argc, char **argv)
{
    run_args a = {0};
    int n, code = cli_parse(&spec, argc, argv, &a, &n);
    tsri_experiment *e = NULL;
    run_stop_open();
    cli_forbid_plugins(a.no_plugins);
    if (code < 0 && a.trace && !a.out)
        code = cli_bad_usage(&spec, "--trace needs --out, where trace.json goes");
    if (code < 0 &&
        tsri_experiment_load_for(argv[1], world_size(&a), a.sets.n, a.sets.items, &e) != TSR_OK)
        code = cli_fail("run");
    if (code < 0) {
        run_job job = {.path = argv[1],
                       .out = a.out,
                       .html = a.html,
                       .experiment = e,
                       .steps = a.steps,
                       .base_bytes = run_process_bytes("VmRSS:"),
                       .trace = a.trace,
                       .json = a.json,
                       .progress = !a.json && isatty(STDOUT_FILENO),
                       .opts = *TSR_COMPILE_OPTS()};
        code = work(&a, &job);
    }
    tsri_experiment_destroy(e);
    cli_args_finish(&spec, &a);
    return code;
}
