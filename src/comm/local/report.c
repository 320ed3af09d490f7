/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps of a rank about itself. */
#include "src/core/world.h"
#include "src/comm/flight/flight.h"
#include "src/core/live.h"

#include <tessera/collective.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tsri_flight_leave(tsri_flight *f, const tsri_flight_about *about)
{
    const char *dir = getenv("TESSERA_FLIGHT_DIR");
    if (!f || !dir || !dir[0])
        return;
    int world = atomic_load(&f->world), dumped = atomic_load(&f->dumped);
    if ((world && (dumped == world || dumped == -world)) ||
        !atomic_compare_exchange_strong(&f->dumped, &dumped, -world))
        return;
    /* The launcher dumps a rank that has no dump written, or is stopped before it is. */
    atomic_store(&f->dumped, tsri_flight_write(f, about, dir) ? 0 : world);
}

/* Errors that end, or tell of the end of, common work. */
static bool is_grave(tsr_status status)
{
    return status == TSR_ERR_MISMATCH || status == TSR_ERR_TIMEOUT || status == TSR_ERR_REMOTE ||
           status == TSR_ERR_DEAD || status == TSR_ERR_BACKEND;
}

tsr_status tsri_flight_fail(tsr_world *world, uint64_t number, tsr_status status)
{
    if (!is_grave(status))
        return status;
    tsri_flight_failed(world->flight, number);
    char reason[2048];
    snprintf(reason, sizeof reason, "%s: %.2000s", tsr_status_name(status), tsr_last_error());
    tsri_flight_leave(
        world->flight,
        &(tsri_flight_about){.reason = reason, .log = world->log, .log_arg = world->log_arg});
    return status;
}

tsr_status tsri_flight_end(tsr_world *world, uint64_t number, tsr_status status)
{
    if (status != TSR_OK)
        return tsri_flight_fail(world, number, status);
    tsri_flight_completed(world->flight, number);
    return TSR_OK;
}

tsr_status tsri_flight_fail_start(tsr_world *world, uint64_t number, tsr_status status)
{
    if (!is_grave(status))
        tsri_flight_refused(world->flight, number);
    return tsri_flight_fail(world, number, status);
}

tsr_status tsr_flight_dump(tsr_world *world, const char *dir)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world)
        return tsri_fail(TSR_ERR_INVALID, "tsr_flight_dump of no world (did its creation fail?)");
    if (!world->flight)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_flight_dump in a virtual world: its ranks call nothing");
    const char *variable = getenv("TESSERA_FLIGHT_DIR");
    if (!dir)
        dir = variable && variable[0] ? variable : NULL;
    if (!dir || !dir[0])
        return tsri_fail(TSR_ERR_INVALID, "tsr_flight_dump without a folder: give one, or set the "
                                          "variable TESSERA_FLIGHT_DIR");
    int rc =
        tsri_flight_write(world->flight, &(tsri_flight_about){.reason = "tsr_flight_dump"}, dir);
    if (rc)
        return tsri_fail(TSR_ERR_IO, "can't write flight.rank%d.txt in '%s': %s", world->rank, dir,
                         strerror(-rc));
    return TSR_OK;
}
