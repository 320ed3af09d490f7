/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorBoard's files of events: records of TFRecord (tensorflow/core/lib/io/record_writer.h), each
 * the protocol buffer Event (tensorflow/core/util/event.proto) with a Summary of scalars.
 *
 *   record  u64 length, u32 masked crc of it, the data, u32 masked crc of the data; little endian
 *   mask    ((crc >> 15) | (crc << 17)) + 0xa282ead8, of crc32c (Castagnoli)
 *   Event   1 double wall_time; 2 int64 step; 3 string file_version; 5 Summary
 *   Summary 1 repeated Value, of 1 string tag; 2 float simple_value
 */
#include "src/cli/run/run.h"
#include "src/core/new_file.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENT_MAX = 1024,
    VARINT_MAX = 10,
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5
};

typedef struct bytes {
    size_t n;
    unsigned char at[EVENT_MAX];
} bytes;

static uint32_t crc32c(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* --- protocol buffers ------------------------------------------------------------------------- */
static void put_fixed(bytes *b, uint64_t v, int n)
{
    for (int i = 0; i < n && b->n < EVENT_MAX; i++)
        b->at[b->n++] = (unsigned char)(v >> (8 * i));
}

static void put_varint(bytes *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        put_fixed(b, (v & 0x7f) | 0x80, 1);
    put_fixed(b, v, 1);
}

static void put_key(bytes *b, int field, int wire)
{
    put_varint(b, (uint64_t)(field << 3 | wire));
}

static void put_bytes(bytes *b, int field, const void *data, size_t n)
{
    put_key(b, field, WIRE_BYTES);
    put_varint(b, n);
    if (b->n + n <= EVENT_MAX)
        memcpy(b->at + b->n, data, n);
    b->n += b->n + n <= EVENT_MAX ? n : 0;
}

static void begin_event(bytes *b, int64_t step)
{
    struct timespec now;
    double seconds;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, sizeof bits);
    put_key(b, 1, WIRE_64);
    put_fixed(b, bits, 8);
    put_key(b, 2, WIRE_VARINT);
    put_varint(b, (uint64_t)step);
}

/* --- the file --------------------------------------------------------------------------------- */
static void put_record(FILE *f, const bytes *event)
{
    bytes record = {0};
    const uint32_t mask = 0xa282ead8u;
    put_fixed(&record, event->n, 8);
    uint32_t crc = crc32c(record.at, 8);
    put_fixed(&record, (crc >> 15 | crc << 17) + mask, 4);
    fwrite(record.at, 1, record.n, f);
    fwrite(event->at, 1, event->n, f);
    crc = crc32c(event->at, event->n);
    record.n = 0;
    put_fixed(&record, (crc >> 15 | crc << 17) + mask, 4);
    fwrite(record.at, 1, record.n, f);
    fflush(f);
}

void run_events_add(FILE *f, int64_t step, int n, const run_scalar *scalars)
{
    bytes event = {0}, summary = {0};
    if (!f)
        return;
    for (int i = 0; i < n; i++) {
        bytes value = {0};
        const float number = (float)scalars[i].value;
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        put_bytes(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_key(&value, 2, WIRE_32);
        put_fixed(&value, bits, 4);
        put_bytes(&summary, 1, value.at, value.n);
    }
    begin_event(&event, step);
    put_bytes(&event, 5, summary.at, summary.n);
    put_record(f, &event);
}

tsr_status run_events_open(const char *folder, int64_t step, FILE **out_file)
{
    static const char version[] = "brain.Event:2";
    char host[HOST_NAME_MAX + 1] = "localhost", path[PATH_MAX];
    gethostname(host, sizeof host - 1);
    int rc = -tsri_make_folders(folder, 0777);
    int n = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%d.%lld", folder,
                     (long long)time(NULL), host, (int)getpid(), (long long)step);
    if (!rc && (n < 0 || n >= PATH_MAX))
        rc = ENAMETOOLONG;
    FILE *f = rc ? NULL : fopen(path, "we");
    if (!f)
        return tsr_set_error(TSR_ERR_IO, "%s: %s", rc ? folder : path, strerror(rc ? rc : errno));
    bytes event = {0};
    begin_event(&event, step);
    put_bytes(&event, 3, version, sizeof version - 1);
    put_record(f, &event);
    *out_file = f;
    return TSR_OK;
}
