/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says it needs is what the process grows by: MobileNetV2, batch 64, f32, one rank. */
#include "rank_train.h"

enum { BATCH = 64, RUNS = 5 };

/* Between runs: a page table's worth of noise. */
#define NOISE (128.0 * 1024)

/* Bytes of this process that have memory: the tensors' arena (RssShmem) and the rest (RssAnon). */
typedef struct resident {
    double shmem, anon;
} resident;

static resident look(void)
{
    char line[256];
    long kb;
    resident r = {-1, -1};
    FILE *f = fopen("/proc/self/status", "r");
    if (!f)
        return r;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "RssAnon: %ld", &kb) == 1)
            r.anon = 1024.0 * (double)kb;
        if (sscanf(line, "RssShmem: %ld", &kb) == 1)
            r.shmem = 1024.0 * (double)kb;
    }
    fclose(f);
    return r;
}

/* `before`: ahead of tsr_compile; after[i]: behind run i. */
static tsr_status check_growth(tsr_plan *plan, resident before, const resident *after)
{
    const resident *last = &after[RUNS - 1];
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    double said = (double)(info.activation_bytes + info.variable_bytes + info.port_bytes);
    double books = (double)info.host_bytes;
    double tensors = last->shmem - before.shmem, others = last->anon - before.anon;
    double later = last->shmem - after[0].shmem + last->anon - after[0].anon;
    printf("the plan says %.2f MB (activations %.2f, variables %.2f, ports %.2f) and %.2f MB of "
           "books; the "
           "process grew by %.2f MB of tensors and %.2f MB of others, in runs 2..%d by %.2f MB\n",
           1e-6 * said, 1e-6 * (double)info.activation_bytes, 1e-6 * (double)info.variable_bytes,
           1e-6 * (double)info.port_bytes, 1e-6 * books, 1e-6 * tensors, 1e-6 * others, RUNS,
           1e-6 * later);
    CHECK(before.shmem >= 0 && before.anon > 0);
    CHECK(tensors + others <= 1.06 * (said + books));
    CHECK(tensors <= 1.01 * said + NOISE);
    CHECK(tensors >= 0.95 * said); /* what it says is used, and this test sees it */
    CHECK(later <= NOISE);
    return TSR_OK;
}

static tsr_status train(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = tsr_mobilenet_v2(w, p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = 10));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.01, .momentum = 0.9));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(BATCH, 3, 32, 32), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    static float xs[BATCH * 3 * 32 * 32];
    static int64_t ys[BATCH];
    for (size_t i = 0; i < sizeof xs / sizeof *xs; i++)
        xs[i] = (float)noise(i);
    for (int i = 0; i < BATCH; i++)
        ys[i] = i % 10;

    resident before = look(), after[RUNS];
    double loss_value;
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    for (int i = 0; i < RUNS; i++) {
        TRY(tsr_feed(plan, "x", xs, sizeof xs));
        TRY(tsr_feed(plan, "y", ys, sizeof ys));
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "loss", &loss_value));
        after[i] = look();
    }
    return check_growth(plan, before, after);
}

static void test_growth(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("a sanitizer's shadow memory is no part of what the library needs\n");
    skip();
#endif
    if (tsr_spawn(1, train, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_growth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
