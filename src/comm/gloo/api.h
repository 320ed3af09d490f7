/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the library and libtessera_gloo.so, which holds all that names Gloo: C, so
 * that no exception and no type of C++ crosses it. It is loaded when a world first needs it (see
 * src/core/library.h; the variable is TESSERA_GLOO_MODULE) and calls nothing of the library.
 *
 * A device is one local address, and one thread that serves all connections made at it. A mesh is a
 * group of ranks with a connection between any two. Functions that return a tsri_gloo_result write
 * a text into err unless it is TSRI_GLOO_OK.
 */
#ifndef TESSERA_COMM_GLOO_API_H
#define TESSERA_COMM_GLOO_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSRI_GLOO_ABI 2
#define TSRI_GLOO_ENTRY "tsri_gloo_module"

typedef enum tsri_gloo_result {
    TSRI_GLOO_OK = 0,
    TSRI_GLOO_LOST,        /* a connection: the peer closed it, or could not be reached */
    TSRI_GLOO_INTERRUPTED, /* by interrupt */
    TSRI_GLOO_NO_MEMORY,
    TSRI_GLOO_FAILED, /* anything else */
} tsri_gloo_result;

typedef struct tsri_gloo_error {
    char text[512];
} tsri_gloo_error;

typedef struct tsri_gloo_device tsri_gloo_device;
typedef struct tsri_gloo_mesh tsri_gloo_mesh;
typedef struct tsri_gloo_post tsri_gloo_post; /* pieces that go together, once or often */

/* Bytes to or from member `peer`. Between two members the k-th that one sends in a slot is the k-th
 * that the other receives in it; both say the same size, above 0. */
typedef struct tsri_gloo_piece {
    void *data;
    size_t bytes;
    int peer;
    bool send; /* data is then only read */
} tsri_gloo_piece;

enum { TSRI_GLOO_ADDRESS_BYTES = 256 };

typedef struct tsri_gloo_api {
    size_t size;
    uint32_t abi;
    const char *version;

    /* host: an address of this machine, or a name of one. Ports are opened there alone. */
    tsri_gloo_result (*device_open)(const char *host, tsri_gloo_device **out_device,
                                    tsri_gloo_error *err);
    /* After its meshes. */
    void (*device_close)(tsri_gloo_device *device);

    /* Member `index` of n; listens for each of those before it. connect_s bounds mesh_connect. */
    tsri_gloo_result (*mesh_open)(tsri_gloo_device *device, int n, int index, double connect_s,
                                  tsri_gloo_mesh **out_mesh, tsri_gloo_error *err);
    /* Writes the address that member `peer` needs for its mesh_connect to this one: a secret is in
     * it, without which nobody is connected. Returns its bytes. */
    size_t (*mesh_address)(tsri_gloo_mesh *mesh, int peer, char buf[TSRI_GLOO_ADDRESS_BYTES]);
    /* With each peer in ascending order, by all members. Returns when both are connected. */
    tsri_gloo_result (*mesh_connect)(tsri_gloo_mesh *mesh, int peer, const char *address,
                                     size_t bytes, tsri_gloo_error *err);
    /* Makes *post of pieces, whose data stays where it is until drop, or until it is made of
     * others. *post may be NULL, or one that is not under way. */
    tsri_gloo_result (*mesh_make)(tsri_gloo_mesh *mesh, int npieces, const tsri_gloo_piece *pieces,
                                  tsri_gloo_post **post, tsri_gloo_error *err);
    /*
     * Sends and receives the pieces of a post, all at once. post returns when they are asked for.
     * wait returns when pieces [first, end) are received, or given to the operating system; when it
     * has done so for all, the post can be posted again. any receives from whichever of n members
     * with from[m] sends first in the slot: *out_peer; it waits.
     *
     * *at is the member that is waited for, -1 if none is or it may be any of several; *moved is
     * counted up by each piece that is done: other threads read both, by atomic loads. On failure
     * *at stays. There is no limit of time: other threads interrupt.
     */
    tsri_gloo_result (*mesh_post)(tsri_gloo_mesh *mesh, uint64_t slot, tsri_gloo_post *post,
                                  int *at, tsri_gloo_error *err);
    tsri_gloo_result (*mesh_wait)(tsri_gloo_mesh *mesh, tsri_gloo_post *post, int first, int end,
                                  int *at, uint64_t *moved, tsri_gloo_error *err);
    /* NULL is fine. */
    void (*mesh_drop)(tsri_gloo_mesh *mesh, tsri_gloo_post *post);
    tsri_gloo_result (*mesh_any)(tsri_gloo_mesh *mesh, uint64_t slot, void *data, size_t bytes,
                                 int n, const int *from, int *at, uint64_t *moved, int *out_peer,
                                 tsri_gloo_error *err);
    /* Whether the connection to a member is there still, as far as can be told here: LOST if not.
     * From any thread; each time leaves a few bytes behind on both sides. */
    tsri_gloo_result (*mesh_probe)(tsri_gloo_mesh *mesh, int peer, tsri_gloo_error *err);
    /* From any thread: wait and any, now and from now on, end; and all connections are closed,
     * which peers that wait for them see. */
    void (*mesh_interrupt)(tsri_gloo_mesh *mesh);
    /* Messages that were sent still arrive, unless interrupted. */
    void (*mesh_close)(tsri_gloo_mesh *mesh);
} tsri_gloo_api;

/* The module's one entry point. */
typedef const tsri_gloo_api *tsri_gloo_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
