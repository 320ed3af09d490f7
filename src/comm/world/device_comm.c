/* SPDX-License-Identifier: Apache-2.0 */
/* Which communicator joins ranks' devices: decided from what all ranks say, so that all decide the
 * same. */
#include "kernels/module.h"
#include "src/comm/world/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum choice {
    CHOICE_WRONG = -1,
    CHOICE_OPEN = 0,
    CHOICE_NCCL,
    CHOICE_LOCAL,
} choice;

/* A rank's word about its device. */
typedef struct saying {
    int32_t has_device, choice;
    char machine[64], device[64], text[32];
} saying;
_Static_assert(sizeof(saying) % sizeof(int64_t) == 0, "a saying goes as words");

/* The word of the first of the ranks once NCCL is chosen. */
typedef struct invitation {
    int64_t status;
    unsigned char id[128];
    char text[512];
} invitation;
_Static_assert(sizeof(invitation) % sizeof(int64_t) == 0, "an invitation goes as words");

/* Returns the variable that selects the communicator of a rank's device; NULL if its kind has only
 * the local communicator. */
static const char *variable_of(const tsri_device *device)
{
    return device ? tsri_target_of(device->kind)->comm_variable : NULL;
}

static saying say(const tsri_device *device)
{
    saying s = {.has_device = device != NULL};
    const char *variable = variable_of(device), *text = variable ? getenv(variable) : NULL;
    text = text ? text : "";
    s.choice = !variable                ? CHOICE_LOCAL
               : !*text                 ? CHOICE_OPEN
               : !strcmp(text, "nccl")  ? CHOICE_NCCL
               : !strcmp(text, "local") ? CHOICE_LOCAL
                                        : CHOICE_WRONG;
    snprintf(s.text, sizeof s.text, "%.31s", text);
    snprintf(s.device, sizeof s.device, "%.63s", device ? device->id : "");
    tsri_machine_boot(s.machine, sizeof s.machine);
    return s;
}

static tsr_status check_sayings(const saying *all, int nranks, const int *ranks,
                                const char *variable)
{
    const saying *first = &all[0];
    for (int i = 0; i < nranks; i++)
        if (!all[i].has_device)
            return tsri_fail(TSR_ERR_INVALID, "rank %d has no device to communicate with",
                             ranks[i]);
    for (int i = 0; i < nranks; i++) {
        const saying *s = &all[i];
        if (s->choice == CHOICE_WRONG)
            return tsri_fail(TSR_ERR_INVALID,
                             "the variable %s is '%s' on rank %d: expected nccl or local", variable,
                             s->text, ranks[i]);
        if (s->choice != first->choice)
            return tsri_fail(TSR_ERR_MISMATCH,
                             "ranks disagree: the variable %s is '%s' on rank %d and "
                             "'%s' on rank %d",
                             variable, first->text, ranks[0], s->text, ranks[i]);
    }
    return TSR_OK;
}

/* Two members that share a device. */
static bool find_sharers(const saying *all, int nranks, int *out_a, int *out_b)
{
    for (int i = 0; i < nranks; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(all[i].machine, all[j].machine) && !strcmp(all[i].device, all[j].device)) {
                *out_a = j;
                *out_b = i;
                return true;
            }
    return false;
}

/* Ranks that share a GPU wait for each other's kernels; that is for tests, and on request. */
static tsr_status want_no_sharers(const saying *all, int nranks, const int *ranks,
                                  const char *variable)
{
    int a, b, here = 0, gpus = 0;
    if (!find_sharers(all, nranks, &a, &b))
        return TSR_OK;
    for (int i = 0; i < nranks; i++) {
        if (strcmp(all[i].machine, all[a].machine))
            continue;
        int first = 0; /* the first rank of this one's GPU */
        while (strcmp(all[first].machine, all[i].machine) ||
               strcmp(all[first].device, all[i].device))
            first++;
        here++;
        gpus += first == i;
    }
    return tsri_fail(TSR_ERR_INVALID,
                     "%d ranks of one machine have %d GPU%s: ranks %d and %d share the GPU %s; "
                     "start one rank a GPU, or let ranks share by %s=local",
                     here, gpus, gpus == 1 ? "" : "s", ranks[a], ranks[b], all[a].device, variable);
}

/* The first of the ranks makes the id. */
static tsr_status invite(tsr_world *world, int nranks, const int *ranks, const tsri_module *module,
                         invitation *out)
{
    invitation mine = {0};
    if (world->rank == ranks[0]) {
        mine.status = module->nccl_id(mine.id);
        if (mine.status != TSR_OK)
            snprintf(mine.text, sizeof mine.text, "%.511s", tsr_last_error());
    }
    invitation *all = tsri_mem_alloc(&world->mem, (size_t)nranks * sizeof *all);
    TSRI_NEED(all);
    tsr_status status =
        tsri_comm_gather_words(world, nranks, ranks, "joining NCCL",
                               (int64_t)(sizeof mine / sizeof(int64_t)), &mine, (int64_t *)all);
    if (status == TSR_OK)
        *out = all[0];
    tsri_mem_free(all);
    TSRI_TRY(status);
    if (out->status != TSR_OK)
        return tsri_fail((tsr_status)out->status, "rank %d: %s", ranks[0], out->text);
    return TSR_OK;
}

static tsr_status create_nccl(tsr_world *world, tsri_device *device, int nranks, const int *ranks,
                              const saying *all, tsri_comm **out_comm)
{
    const tsri_module *module = NULL;
    invitation in;
    int a, b;
    TSRI_TRY(tsri_module_get(device->kind, &module));
    TSRI_TRY(invite(world, nranks, ranks, module, &in));
    tsr_status status = module->nccl_create(device, in.id, nranks, ranks, out_comm);
    if (status == TSR_OK)
        return TSR_OK;
    if (find_sharers(all, nranks, &a, &b))
        tsri_fail_prefix(status, "NCCL was asked for by %s, but ranks %d and %d share the GPU %s",
                         variable_of(device), ranks[a], ranks[b], all[a].device);
    world->comm->ops->abort(world->comm, tsr_last_error()); /* the others wait */
    return status;
}

tsr_status tsri_comm_create_device(tsr_world *world, tsri_device *device, int nranks,
                                   const int *ranks, tsri_device_comm_of of, tsri_comm **out_comm)
{
    const saying mine = say(device);
    saying *all = tsri_mem_alloc(&world->mem, (size_t)nranks * sizeof *all);
    if (!all) {
        world->comm->ops->abort(world->comm, tsr_last_error()); /* the others wait */
        return TSR_ERR_NO_MEMORY;
    }
    tsri_comm *comm = NULL;
    tsr_status status =
        tsri_comm_gather_words(world, nranks, ranks, "joining devices",
                               (int64_t)(sizeof mine / sizeof(int64_t)), &mine, (int64_t *)all);
    if (status == TSR_OK)
        status = check_sayings(all, nranks, ranks, variable_of(device));
    if (status == TSR_OK && all[0].choice == CHOICE_OPEN)
        status = want_no_sharers(all, nranks, ranks, variable_of(device));
    if (status == TSR_OK)
        status = all[0].choice == CHOICE_LOCAL
                     ? tsri_local_create_device(world, device, nranks, ranks, of, &comm)
                     : create_nccl(world, device, nranks, ranks, all, &comm);
    tsri_mem_free(all);
    if (status == TSR_OK)
        *out_comm = comm;
    return status;
}
