/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `tessera launch`. */
#include "src/cli/cli.h"
#include "src/cli/launch/launch.h"
#include "src/cli/options.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 29500, PORT_MAX = 65535 };

typedef struct args {
    const char *nranks, *nproc, *nnodes, *addr, *backend, *endpoint, *run_id, *monitor, *grace;
    const char *log_dir, *redirects, *tee, *filter, *gpus, *pin, *timeout, *token_file, *join;
    const char *role, *rdzv_conf, *start_method, *local_addr;
    int64_t node_rank, port, max_restarts;
    bool standalone, prefix, module, no_python, run_path;
} args;

#define AT(field) offsetof(args, field)
#define TEXT(name, letter, field, value, help)                     \
    {                                                              \
        name, letter, CLI_TEXT, AT(field), value, help, 0, 0, NULL \
    }
static const cli_option options[] = {
    TEXT("ranks", 'n', nranks, NULL, "ranks of this node, or auto, cpu, gpu (1)"),
    TEXT("nproc-per-node", 0, nproc, "N", NULL),
    TEXT("nnodes", 0, nnodes, "N", "nodes (1), which this is; this alone"),
    {"node-rank", 0, CLI_INT, AT(node_rank), "R", NULL, 0, LAUNCH_MAX_NODES - 1,
     "the number of a node"},
    {"standalone", 0, CLI_FLAG, AT(standalone), NULL, NULL, 0, 0, NULL},
    TEXT("master-addr", 0, addr, "A", "where node 0 is met (port 29500)"),
    {"master-port", 0, CLI_INT, AT(port), "P", NULL, 0, PORT_MAX, "a port"},
    TEXT("rdzv-endpoint", 0, endpoint, "A:P", "the same; nodes may come in any order"),
    TEXT("rdzv-id", 0, run_id, "ID", "its name; static or c10d"),
    TEXT("rdzv-backend", 0, backend, "B", NULL),
    TEXT("rdzv-conf", 0, rdzv_conf, "K=V", NULL),
    TEXT("token-file", 0, token_file, "PATH", "the run's secret, the same for all nodes"),
    {"max-restarts", 0, CLI_INT, AT(max_restarts), "K", "start all again, K times (0)", 0, 1000000,
     "a number of restarts"},
    {"monitor-interval", 0, CLI_SECONDS, AT(monitor), "S", "watch nodes (0.1), wait for them (300)",
     0, 0, NULL},
    {"join-timeout", 0, CLI_SECONDS, AT(join), "S", NULL, 0, 0, NULL},
    TEXT("log-dir", 0, log_dir, "DIR", "keep the ranks' output in files there"),
    TEXT("redirects", 'r', redirects, "W", "there alone, also there: 1 out, 2 err, 3"),
    TEXT("tee", 't', tee, "W", NULL),
    TEXT("local-ranks-filter", 0, filter, "R,R", "only these ranks' output on the console"),
    {"prefix", 0, CLI_FLAG, AT(prefix), NULL, "put \"[rank] \" before each line of output", 0, 0,
     NULL},
    TEXT("gpu", 0, gpus, "G,G", "GPUs of the ranks (CUDA_VISIBLE_DEVICES)"),
    TEXT("pin", 0, pin, "P", "ranks to cores: auto, none or core"),
    {"signal-timeout", 0, CLI_SECONDS, AT(grace), "S", "SIGTERM to SIGKILL (5); in calls (60)", 0,
     0, NULL},
    {"timeout", 0, CLI_SECONDS, AT(timeout), "S", NULL, 0, 0, NULL},
    {"module", 'm', CLI_FLAG, AT(module), NULL, "PROG is a module; a program (as ever)", 0, 0,
     NULL},
    {"no-python", 0, CLI_FLAG, AT(no_python), NULL, NULL, 0, 0, NULL},
    TEXT("role", 0, role, "NAME", "as torchrun's"),
    TEXT("start-method", 0, start_method, "W", NULL),
    TEXT("local-addr", 0, local_addr, "A", NULL),
    {"run-path", 0, CLI_FLAG, AT(run_path), NULL, NULL, 0, 0, NULL},
};
#undef TEXT
#undef AT

static const cli_spec spec = {
    .command = "launch",
    .usage = "[-n N] [OPTIONS...] [--] PROG [ARGS...]",
    .about = "Runs PROG as N ranks. If one fails, the others are stopped, and its exit code is\n"
             "returned. ${rank} and ${local_rank} in ARGS are replaced.",
    CLI_OPTIONS(options),
    .min_operands = 1,
    .missing = "no program to run",
    .is_wrapper = true,
};

enum { GO_ON = -1 };

/* --- lists ------------------------------------------------------------------------------------ */

static bool whole(const char *text, size_t length, long min, long max, long *out)
{
    char copy[24], *end;
    if (!length || length >= sizeof copy || !isdigit((unsigned char)*text))
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    *out = strtol(copy, &end, 10);
    return !*end && *out >= min && *out <= max;
}

/* Items between commas; 0 for an empty list or an empty item. */
static int count_items(const char *list)
{
    int n = 0;
    for (const char *p = list;; p++) {
        size_t length = strcspn(p, ",");
        if (!length)
            return 0;
        n++;
        p += length;
        if (!*p)
            return n;
    }
}

/* "3", or "0:1,1:3". */
static bool parse_redirection(const char *text, int nlocal, uint8_t *bits)
{
    long value, rank;
    if (whole(text, strlen(text), 0, 3, &value)) {
        memset(bits, (int)value, (size_t)nlocal);
        return true;
    }
    if (!count_items(text))
        return false;
    for (const char *p = text; *p; p += *p == ',') {
        size_t length = strcspn(p, ","), head = strcspn(p, ":");
        if (head >= length || !whole(p, head, 0, nlocal - 1, &rank) ||
            !whole(p + head + 1, length - head - 1, 0, 3, &value))
            return false;
        bits[rank] = (uint8_t)value;
        p += length;
    }
    return true;
}

static bool parse_filter(const char *text, int nlocal, bool *shown)
{
    long rank;
    memset(shown, 0, (size_t)nlocal * sizeof *shown);
    if (!count_items(text))
        return false;
    for (const char *p = text; *p; p += *p == ',') {
        size_t length = strcspn(p, ",");
        if (!whole(p, length, 0, nlocal - 1, &rank))
            return false;
        shown[rank] = true;
        p += length;
    }
    return true;
}

/* --- ranks ------------------------------------------------------------------------------------ */

/* Counts the GPUs that a program would see, without asking the driver, which would take its time.
 * CUDA counts up to the first that is not there. */
static int count_gpus(const char *given)
{
    const char *visible = given ? given : getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    if (visible) {
        for (const char *p = visible; *p && *p != '-' && *p != ','; p += *p == ',') {
            n++;
            p += strcspn(p, ",");
        }
        return n;
    }
    DIR *dev = opendir("/dev");
    for (struct dirent *e; dev && (e = readdir(dev));) {
        const char *digits = e->d_name + strlen("nvidia");
        n += !strncmp(e->d_name, "nvidia", 6) && *digits && !digits[strspn(digits, "0123456789")];
    }
    if (dev)
        closedir(dev);
    return n;
}

static int parse_nranks(const args *a, launch_config *c)
{
    const char *text = a->nproc ? a->nproc : a->nranks ? a->nranks : "1";
    const char *option = a->nproc ? "--nproc-per-node" : "-n";
    long n = 0;
    if (a->nproc && a->nranks)
        return cli_bad_usage(&spec, "-n and --nproc-per-node say the same: give one");
    bool is_auto = !strcmp(text, "auto");
    if (is_auto || !strcmp(text, "gpu")) {
        n = count_gpus(a->gpus);
        if (!n && !is_auto)
            return cli_bad_usage(&spec, "%s gpu: there is no GPU here (no /dev/nvidia0%s)", option,
                                 getenv("CUDA_VISIBLE_DEVICES") ? ", or CUDA_VISIBLE_DEVICES names "
                                                                  "none"
                                                                : "");
    }
    if ((is_auto && !n) || !strcmp(text, "cpu"))
        n = launch_count_cores();
    if (!n && !whole(text, strlen(text), 1, TSRI_ARENA_MAX_RANKS, &n))
        return cli_bad_usage(&spec,
                             "%s needs a number of ranks, 1 to %d, not %s, nor auto, cpu or "
                             "gpu",
                             option, TSRI_ARENA_MAX_RANKS, text);
    if (n > TSRI_ARENA_MAX_RANKS)
        return cli_bad_usage(&spec,
                             "%s %s is %ld here, but a node has at most %d ranks: give a number",
                             option, text, n, TSRI_ARENA_MAX_RANKS);
    c->nlocal = (int)n;
    return GO_ON;
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* "N", or "N:N" as torchrun has it. */
static int parse_nnodes(const args *a, launch_config *c)
{
    const char *text = a->nnodes ? a->nnodes : "1";
    size_t head = strcspn(text, ":");
    long least = 0, most = 0;
    if (!whole(text, head, 1, LAUNCH_MAX_NODES, &least) ||
        (text[head] &&
         !whole(text + head + 1, strlen(text + head + 1), 1, LAUNCH_MAX_NODES, &most)))
        return cli_bad_usage(&spec, "--nnodes needs a number of nodes, 1 to %d, not %s",
                             LAUNCH_MAX_NODES, text);
    if (most && most != least)
        return cli_bad_usage(&spec,
                             "--nnodes %s: a run has as many nodes to its end as it starts "
                             "with: give one number",
                             text);
    c->nnodes = (int)least;
    return GO_ON;
}

/* HOST, HOST:PORT, [V6], [V6]:PORT. *port stays if there is none. */
static bool split_endpoint(const char *text, launch_config *c, int64_t *port)
{
    const char *host = text, *end = strrchr(text, ':'), *rest;
    long value;
    if (*text == '[') {
        host = text + 1;
        end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        rest = end[1] ? end + 1 : NULL;
    } else {
        if (end && strchr(text, ':') != end) /* a bare IPv6 address */
            end = NULL;
        rest = end;
        end = end ? end : text + strlen(text);
    }
    size_t length = (size_t)(end - host);
    if (!length || length >= sizeof c->addr)
        return false;
    memcpy(c->addr, host, length);
    c->addr[length] = 0;
    if (rest && !whole(rest + 1, strlen(rest + 1), 0, PORT_MAX, &value))
        return false;
    if (rest)
        *port = value;
    return true;
}

static int check_nodes(const args *a, launch_config *c, int64_t port)
{
    if (c->nnodes == 1) {
        if (a->node_rank > 0)
            return cli_bad_usage(&spec, "--node-rank %d, but --nnodes is 1", (int)a->node_rank);
        c->node_rank = 0;
        c->port = port > 0 ? (int)port : 0;
        if (!c->addr[0] || a->standalone)
            snprintf(c->addr, sizeof c->addr, "127.0.0.1");
        return GO_ON;
    }
    if (a->standalone)
        return cli_bad_usage(&spec, "--standalone is for one node, but --nnodes is %d", c->nnodes);
    if (!c->addr[0])
        return cli_bad_usage(&spec, "where is node 0? --master-addr or --rdzv-endpoint is missing");
    if (a->node_rank < 0 && !a->endpoint)
        return cli_bad_usage(&spec,
                             "--node-rank is missing: 0 to %d, or --rdzv-endpoint in place "
                             "of --master-addr",
                             c->nnodes - 1);
    if (a->node_rank >= c->nnodes)
        return cli_bad_usage(&spec, "--node-rank is %d, but --nnodes is %d", (int)a->node_rank,
                             c->nnodes);
    if (port == 0)
        return cli_bad_usage(&spec, "port 0 is for one node: several need a port that all know");
    c->node_rank = (int)a->node_rank;
    c->port = port < 0 ? DEFAULT_PORT : (int)port;
    return GO_ON;
}

static int parse_place(const args *a, launch_config *c)
{
    int64_t port = a->port;
    if (a->backend && strcmp(a->backend, "static") != 0 && strcmp(a->backend, "c10d") != 0)
        return cli_bad_usage(&spec, "--rdzv-backend needs static or c10d, not %s", a->backend);
    if (a->endpoint && a->addr)
        return cli_bad_usage(&spec, "--master-addr and --rdzv-endpoint say the same: give one");
    if (a->addr && strlen(a->addr) >= sizeof c->addr)
        return cli_bad_usage(&spec, "--master-addr needs an address, not %s", a->addr);
    if (a->addr)
        snprintf(c->addr, sizeof c->addr, "%s", a->addr);
    if (a->endpoint && !split_endpoint(a->endpoint, c, &port))
        return cli_bad_usage(&spec, "--rdzv-endpoint needs HOST:PORT, not %s", a->endpoint);
    int code = parse_nnodes(a, c);
    return code == GO_ON ? check_nodes(a, c, port) : code;
}

bool launch_is_run_id(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-+=@:", text[i]))
            return false;
    return n > 0 && n <= LAUNCH_RUN_ID_MAX && *text != '.';
}

/* --- output ----------------------------------------------------------------------------------- */

static int parse_output(const args *a, launch_config *c)
{
    static const char legal[] = "0 none, 1 stdout, 2 stderr, 3 both, or such a number per rank "
                                "like 0:1,1:3";
    c->log_dir = a->log_dir;
    if (a->log_dir && !*a->log_dir)
        return cli_bad_usage(&spec, "--log-dir needs a folder");
    if (a->redirects && !parse_redirection(a->redirects, c->nlocal, c->redirect))
        return cli_bad_usage(&spec, "--redirects needs %s, ranks below %d, not %s", legal,
                             c->nlocal, a->redirects);
    if (a->tee && !parse_redirection(a->tee, c->nlocal, c->tee))
        return cli_bad_usage(&spec, "--tee needs %s, ranks below %d, not %s", legal, c->nlocal,
                             a->tee);
    if (a->log_dir && !a->redirects && !a->tee)
        memset(c->tee, LAUNCH_OUT | LAUNCH_ERR, (size_t)c->nlocal);
    for (int r = 0; r < c->nlocal; r++)
        if (!a->log_dir && (c->redirect[r] || c->tee[r]))
            return cli_bad_usage(&spec, "--%s needs --log-dir",
                                 c->redirect[r] ? "redirects" : "tee");
    memset(c->shown, 1, sizeof c->shown);
    if (a->filter && !parse_filter(a->filter, c->nlocal, c->shown))
        return cli_bad_usage(&spec, "--local-ranks-filter needs ranks below %d, like 0,1, not %s",
                             c->nlocal, a->filter);
    return GO_ON;
}

static int parse_rest(const args *a, launch_config *c)
{
    static const char *const pins[] = {"auto", "none", "core"};
    int pin = a->pin ? 0 : LAUNCH_PIN_AUTO;
    while (a->pin && pin < 3 && strcmp(a->pin, pins[pin]) != 0)
        pin++;
    if (pin == 3)
        return cli_bad_usage(&spec, "--pin needs auto, none or core, not %s", a->pin);
    if (a->gpus && !count_items(a->gpus))
        return cli_bad_usage(&spec, "--gpu needs GPUs, like 0,1, not '%s'", a->gpus);
    if (a->run_id && !launch_is_run_id(a->run_id))
        return cli_bad_usage(&spec, "--rdzv-id needs up to %d letters, digits and ._-+=@:, not %s",
                             LAUNCH_RUN_ID_MAX, a->run_id);
    if (pin == LAUNCH_PIN_CORE && c->nlocal > launch_count_cores())
        return cli_bad_usage(&spec,
                             "--pin core needs a core for each of the %d ranks, there are %d",
                             c->nlocal, launch_count_cores());
    c->pin = (launch_pin)pin;
    c->gpus = a->gpus;
    c->timeout = a->timeout;
    c->token_file = a->token_file;
    c->prefix = a->prefix;
    c->max_restarts = (int)a->max_restarts;
    c->monitor_s = a->monitor ? strtod(a->monitor, NULL) : 0.1;
    c->join_s = a->join ? strtod(a->join, NULL) : LAUNCH_JOIN_S;
    c->grace_s = a->grace ? strtod(a->grace, NULL) : 0;
    snprintf(c->run_id, sizeof c->run_id, "%s", a->run_id ? a->run_id : "");
    return GO_ON;
}

/* --- torchrun's own --------------------------------------------------------------------------- */
/* The pairs "key=value" of --rdzv-conf, each in place of the option that says the same. */
static int parse_rdzv_conf(args *a)
{
    static const char legal[] = "join_timeout, timeout (the same) or rank";
    static char seconds[24];
    long value;
    for (const char *p = a->rdzv_conf; p && *p; p += *p == ',') {
        size_t length = strcspn(p, ","), key = strcspn(p, "=");
        bool joins =
            key < length && (!strncmp(p, "join_timeout=", 13) || !strncmp(p, "timeout=", 8));
        bool ranks = key < length && !strncmp(p, "rank=", 5);
        const int shown = length < 60 ? (int)length : 60;
        if (!joins && !ranks)
            return cli_bad_usage(&spec,
                                 "--rdzv-conf: there is no use for '%.*s' here; legal are %s",
                                 shown, p, legal);
        if (!whole(p + key + 1, length - key - 1, joins ? 1 : 0, 999999999, &value))
            return cli_bad_usage(&spec, "--rdzv-conf: '%.*s' is no number", shown, p);
        if (ranks && a->node_rank < 0)
            a->node_rank = value;
        if (joins && !a->join) {
            snprintf(seconds, sizeof seconds, "%ld", value);
            a->join = seconds;
        }
        p += length;
    }
    return GO_ON;
}

/* python -u -m MODULE ARGS, with the interpreter that torchrun would take. */
static int run_module(launch_config *c)
{
    const char *python = getenv("PYTHON_EXEC");
    int n = 0;
    while (c->argv[n])
        n++;
    char **words = c->module_argv = calloc((size_t)n + 4, sizeof *words);
    if (!words)
        return cli_bad_usage(&spec, "out of memory");
    static char unbuffered[] = "-u", module[] = "-m", python3[] = "python3";
    words[0] = python && *python ? getenv("PYTHON_EXEC") : python3;
    words[1] = unbuffered;
    words[2] = module;
    memcpy(words + 3, c->argv, (size_t)n * sizeof *words);
    c->argv = words;
    return GO_ON;
}

static int parse_torchrun(args *a, launch_config *c)
{
    static const char *const methods[] = {"spawn", "fork", "forkserver"};
    int m = 0;
    while (a->start_method && m < 3 && strcmp(a->start_method, methods[m]) != 0)
        m++;
    if (m == 3)
        return cli_bad_usage(&spec, "--start-method needs spawn, fork or forkserver, not %s",
                             a->start_method);
    if (a->module && a->no_python)
        return cli_bad_usage(&spec,
                             "-m and --no-python exclude each other: is %s a module or a "
                             "program?",
                             c->argv[0]);
    if (a->run_path)
        return cli_bad_usage(&spec,
                             "--run-path is for Python's multiprocessing: here each rank is a "
                             "process of its own; leave it out");
    if (a->local_addr)
        return cli_bad_usage(&spec,
                             "--local-addr: a node is known by the address from which it "
                             "reaches node 0, which its routes say; leave it out, and give "
                             "--master-addr or --rdzv-endpoint the address of the network that is "
                             "meant");
    if (a->role && (!*a->role || strlen(a->role) > LAUNCH_RUN_ID_MAX))
        return cli_bad_usage(&spec, "--role needs a name of up to %d characters",
                             LAUNCH_RUN_ID_MAX);
    c->role = a->role ? a->role : "default";
    int code = parse_rdzv_conf(a);
    return code == GO_ON && a->module ? run_module(c) : code;
}

int launch_parse(int argc, char **argv, launch_config *out)
{
    args a = {.node_rank = -1, .port = -1};
    int noperands, code = cli_parse(&spec, argc, argv, &a, &noperands);
    if (code >= 0)
        return code;
    *out = (launch_config){.argv = argv + 1};
    if ((code = parse_torchrun(&a, out)) != GO_ON || (code = parse_nranks(&a, out)) != GO_ON ||
        (code = parse_place(&a, out)) != GO_ON || (code = parse_output(&a, out)) != GO_ON ||
        (code = parse_rest(&a, out)) != GO_ON)
        return code;
    return GO_ON;
}
