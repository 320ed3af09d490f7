/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key-value store that processes of one run share while they find each other: over TCP, or in a
 * file of a shared folder. Values are bytes; a counter (tsr_store_add) is its decimal text.
 *
 *   env://                                   rank, size, address and port from the variables RANK,
 *                                            WORLD_SIZE, MASTER_ADDR and MASTER_PORT; with
 *                                            TESSERA_STORE_HOSTED=1 somebody else serves there
 *   tcp://host:port?rank=R&world_size=W      rank 0 serves at that address alone,
 *                                            or at all of a name's that its machine has
 *   file:///shared/path?rank=R&world_size=W  a file that all see; one left over from an earlier
 *                                            run is recognised, the last to close deletes it
 *
 * Over TCP both sides prove that they have the same secret, TESSERA_STORE_TOKEN, which `tessera
 * launch` hands to its ranks; without it no key is read, set or counted, and no rank joins. If the
 * variable is set nowhere, every client is served. A file is protected by its permissions alone.
 *
 * A server over TCP holds at most 256 MiB of keys and values, 128 MiB each of requests that have
 * not come whole and of replies that have not been read (others wait for room), 64 MiB of waits for
 * many keys, 262,144 ranks in all runs that meet there, and as many connections as 7/8 of its
 * process's descriptors (ulimit -n). Where these are not enough, clients that have not greeted make
 * way, then those that have not joined and are idle. A greeting has 10 s, a request or reply that
 * has begun 10 s and one more for each MiB.
 *
 * What the address says can be given in the options instead. A store is used by one thread at a
 * time. Nothing here is collective over a world: these are what worlds are made with.
 */
#ifndef TESSERA_STORE_H
#define TESSERA_STORE_H

#include <tessera/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_store tsr_store;

typedef struct tsr_store_opts {
    size_t size;
    tsr_by_name by_name;
    double timeout_s; /* of opening and of every call that waits; 0 = 60 */
    int rank;         /* counts only where nranks is given */
    int nranks;       /* 0: the address or the environment says it */
    bool hosted;      /* somebody else serves already: rank 0 does not */
} tsr_store_opts;
#define TSR_STORE_OPTS(...) TSR_OPTIONS(tsr_store_opts, (), __VA_ARGS__)

/*
 * Joins the store at `url`; returns when all ranks have joined. opts may be NULL. The caller owns
 * *out_store. Errors: TSR_ERR_INVALID (an address that makes no sense, with what is legal; the same
 * rank twice), TSR_ERR_MISMATCH (the token is another one, or on one side alone; another version),
 * TSR_ERR_IO (no such host, the port is taken, the folder can't be written),
 * TSR_ERR_TIMEOUT naming the ranks that have not come.
 */
TSR_API tsr_status tsr_store_open(const char *url, const tsr_store_opts *opts,
                                  tsr_store **out_store);
/* Leaves the store. Rank 0 of tcp:// waits (up to its timeout) for the others to leave, and then
 * stops serving. NULL is fine. */
TSR_API void tsr_store_close(tsr_store *store);

/* Returns the rank with which the store was joined; -1 for NULL. */
TSR_API int tsr_store_rank(const tsr_store *store);
/* Returns the number of ranks that join the store; 0 for NULL. */
TSR_API int tsr_store_size(const tsr_store *store);
/* Sets the timeout of later calls, in seconds. Errors: TSR_ERR_INVALID unless it is above 0. */
TSR_API tsr_status tsr_store_set_timeout(tsr_store *store, double timeout_s);

/*
 * Sets a key's value. Keys are texts of 1 to 1,000 bytes, values at most 16 MiB. Errors of all:
 * TSR_ERR_INVALID, TSR_ERR_NO_MEMORY (also where the server holds what it may; the text names the
 * limit), TSR_ERR_DEAD (the server, or who served, is gone), TSR_ERR_TIMEOUT naming key and
 * seconds.
 */
TSR_API tsr_status tsr_store_set(tsr_store *store, const char *key, const void *value,
                                 size_t bytes);
/* Waits until the key is there. Writes up to `room` bytes; *out_bytes (may be NULL) is the value's
 * size, TSR_ERR_INVALID if there is no room for it. value NULL: the size alone. */
TSR_API tsr_status tsr_store_get(tsr_store *store, const char *key, void *value, size_t room,
                                 size_t *out_bytes);
/* Adds to a counter, which is 0 if it is not there; *out_value (may be NULL) is what it became.
 * TSR_ERR_FORMAT if the value is not a number, TSR_ERR_INVALID if it leaves the range. */
TSR_API tsr_status tsr_store_add(tsr_store *store, const char *key, int64_t amount,
                                 int64_t *out_value);
/* Sets the key to `desired` if it is `expected` (or absent and `expected_bytes` is 0), and gives
 * what it is then, as tsr_store_get; 0 bytes if it is absent. Sets nothing without room. */
TSR_API tsr_status tsr_store_compare_set(tsr_store *store, const char *key, const void *expected,
                                         size_t expected_bytes, const void *desired,
                                         size_t desired_bytes, void *value, size_t room,
                                         size_t *out_bytes);
/* Returns when all keys are there; timeout_s 0: the store's. The error names those that are not. */
TSR_API tsr_status tsr_store_wait(tsr_store *store, int nkeys, const char *const *keys,
                                  double timeout_s);
/* Says whether all keys are there now. */
TSR_API tsr_status tsr_store_check(tsr_store *store, int nkeys, const char *const *keys,
                                   bool *out_there);
/* Deletes a key. *out_was_there (may be NULL) says whether there was one. */
TSR_API tsr_status tsr_store_delete(tsr_store *store, const char *key, bool *out_was_there);
/* Sets *out_keys to the number of keys that the store holds. */
TSR_API tsr_status tsr_store_count(tsr_store *store, int64_t *out_keys);

#ifdef __cplusplus
}
#endif
#endif
