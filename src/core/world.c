/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/world.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/core/shown.h"

void tsri_log(const tsr_world *world, tsr_log_level level, const char *fmt, ...)
{
    if (!world || !world->log)
        return;
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    tsri_show_lines(text, sizeof text, fmt, ap);
    va_end(ap);
    world->log(world->log_arg, level, text);
}

void tsri_world_own(tsr_world *world, tsri_owned *entry, void *object, void (*destroy)(void *))
{
    *entry = (tsri_owned){
        .next = world->owned, .link = &world->owned, .destroy = destroy, .object = object};
    if (entry->next)
        entry->next->link = &entry->next;
    world->owned = entry;
}

void tsri_world_own_last(tsr_world *world, tsri_owned *entry, void *object, void (*destroy)(void *))
{
    tsri_owned **link = &world->owned;
    while (*link)
        link = &(*link)->next;
    *entry = (tsri_owned){.link = link, .destroy = destroy, .object = object};
    *link = entry;
}

void tsri_world_own_before(tsri_owned *other, tsri_owned *entry, void *object,
                           void (*destroy)(void *))
{
    *entry = (tsri_owned){.next = other, .link = other->link, .destroy = destroy, .object = object};
    *other->link = entry;
    other->link = &entry->next;
}

void tsri_world_disown(tsri_owned *entry)
{
    if (!entry->link)
        return;
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    entry->next = NULL;
    entry->link = NULL;
}

void tsri_world_tell_gone(tsr_world *world, const void *gone)
{
    char before[4096]; /* no call has failed */
    snprintf(before, sizeof before, "%s", tsr_last_error());
    for (tsri_owned *o = world->owned; o; o = o->next)
        if (o->lose)
            o->lose(o->object, gone);
    tsri_fail(TSR_OK, "%s", before);
}

void tsri_world_destroy_owned(tsr_world *world)
{
    world->ends = true;
    while (world->owned) {
        tsri_owned *entry = world->owned;
        /* Taken off first: the object's destroyer frees the entry with the object. */
        tsri_world_disown(entry);
        entry->destroy(entry->object);
    }
}
