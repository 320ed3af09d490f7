/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a file:// store: a head, which begins a generation (one run's use of the file), and
 * records behind it, written by whoever holds the file's lock. Everybody reads the records into a
 * map of his own.
 *
 *   head    256 bytes: magic (16), nonce (u64), number (u64), nranks (u32), zero (u32), rank 0 as a
 *           process (176), zero, checksum (u64) at the end
 *   record  checksum (u64) of what follows, seeded with the nonce; type, key's bytes, value's
 *           bytes, zero (u32 each); key; value
 *
 * Little-endian. A record that is not whole was left by a writer who died: the next one overwrites
 * it. The lock is a byte far behind the end; other such bytes, one for each rank of a generation,
 * are held by the ranks as long as they live. So the system itself, and an NFS server as well, says
 * who is alive. All are locks of open file descriptions: threads may be ranks, each with its own.
 */
#ifndef TESSERA_COMM_STORE_LOG_H
#define TESSERA_COMM_STORE_LOG_H

#include "src/comm/store/inside.h"

typedef enum tsri_log_type {
    TSRI_LOG_SET = 1,
    TSRI_LOG_DELETE,
    TSRI_LOG_JOIN, /* key: "rank"; value: the process */
    TSRI_LOG_GO,   /* all ranks have joined */
    TSRI_LOG_LEAVE,
} tsri_log_type;

/* A rank's identity. Hashes, 0: not known. */
typedef struct tsri_log_process {
    uint64_t pid, start, boot, pid_space;
    char id[TSRI_STORE_ID_SIZE];
} tsri_log_process;

typedef struct tsri_log_member {
    bool joined, left;
    tsri_log_process process;
} tsri_log_member;

typedef enum tsri_log_state {
    TSRI_LOG_NONE = 0, /* there is no file */
    TSRI_LOG_EMPTY,    /* nothing, or a part of a head that is ours */
    TSRI_LOG_RUN,      /* a generation; what is in it has been read */
} tsri_log_state;

typedef struct tsri_log {
    int fd; /* -1: not open */
    const char *path;
    tsri_log_process self;
    uint64_t nonce, number; /* of the generation that has been read; nonce 0: none */
    int nranks;
    bool went; /* TSRI_LOG_GO is there */
    tsri_log_member *member;
    tsri_store_map map;
    uint64_t at; /* read up to there */
    unsigned char *buf;
    size_t room;
} tsri_log;

void tsri_log_init(tsri_log *log, const char *path);
void tsri_log_finish(tsri_log *log);

/* Opens the file at the path, if it isn't open, and takes the lock. *out: what is there; without a
 * file there is no lock. It is tried for some seconds at least. Errors: TSR_ERR_FORMAT (it is
 * something else), TSR_ERR_IO, TSR_ERR_TIMEOUT. */
tsr_status tsri_log_lock(tsri_log *log, bool create, double until_s, tsri_log_state *out);
void tsri_log_unlock(tsri_log *log);
/* Whether the file has not grown since it was read, as far as can be seen without the lock. */
bool tsri_log_is_quiet(const tsri_log *log);

/* With the lock: a new generation, of which this process is rank 0, in place of what is there. */
tsr_status tsri_log_begin(tsri_log *log, int nranks);
/* With the lock: this process is that rank, until the file is closed. */
tsr_status tsri_log_join(tsri_log *log, int rank);
/* With the lock: writes a record, and does to this log what it says. */
tsr_status tsri_log_append(tsri_log *log, tsri_log_type type, tsri_bytes key, tsri_bytes value);
tsr_status tsri_log_append_leave(tsri_log *log, int rank);
/* With the lock: removes the file. */
void tsri_log_remove(tsri_log *log);

/* Whether the rank has joined, has not left, and lives. */
bool tsri_log_is_alive(const tsri_log *log, int rank);
/* A rank other than `but` that is alive; -1: none. */
int tsri_log_find_alive(const tsri_log *log, int but);

#endif
