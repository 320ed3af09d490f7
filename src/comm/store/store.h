/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of stores (tessera/store.h).
 *
 *   store.c         addresses, checks, the calls
 *   url.c     reading an address
 *   map.c     keys and values in memory, and what an operation does to them
 *   wire.h    what client and server say to each other
 *   greet.c   their greeting: proofs of a token
 *   tcp.c     the client of a server
 *   dial.c    how it comes to be connected
 *   server.c  the server: a thread of rank 0, or of the launcher
 *   conn.c    its connections
 *   limits.c  what they may cost it
 *   serve.c   what it answers
 *   meet.c    how it brings the ranks of a run together
 *   file.c    the file
 *   log.c     its bytes, its locks, and what they say of an earlier run
 *   inside.h  what these share; server_inside.h, log.h likewise
 *
 * The server needs nothing but these and src/core's status, mem and sha256.
 */
#ifndef TESSERA_COMM_STORE_STORE_H
#define TESSERA_COMM_STORE_STORE_H

#include <tessera/store.h>

/* A server, on a thread of its own. */
typedef struct tsri_store_server tsri_store_server;
/* Serves at this address alone ("127.0.0.1", "::1"), or at all of a name's that this machine has.
 * port 0: a free one. Clients must have the token of TESSERA_STORE_TOKEN, or none if it is not set.
 * Ends by itself when nobody has been connected for idle_s seconds (0: never).
 * Errors: TSR_ERR_IO naming address, port and what is wrong; TSR_ERR_INVALID (the token). */
tsr_status tsri_store_server_start(const char *host, int port, double idle_s,
                                   tsri_store_server **out_server);
int tsri_store_server_port(const tsri_store_server *server);
/* For errors of those who wait in vain: that the name is of this machine's loopback alone, where
 * nobody comes from other machines; "" else. */
const char *tsri_store_server_note(const tsri_store_server *server);
/* Whether it serves still (idle_s). */
bool tsri_store_server_running(tsri_store_server *server);
/* Closes the port, and waits up to timeout_s for the ranks that have joined to leave; returns
 * whether all have. Its connections go on until it is stopped. */
bool tsri_store_server_drain(tsri_store_server *server, double timeout_s);
/* Closes all connections and the port. NULL is fine. */
void tsri_store_server_stop(tsri_store_server *server);

/* Keys from now on have this put before them ("run/attempt/"), behind what tsri_store_open_under
 * puts there; "": no more. Errors: TSR_ERR_INVALID (more than 1,000 bytes in all). */
tsr_status tsri_store_prefix(tsr_store *store, const char *prefix);
/* The address of this machine by which it reaches the server; "" for a file. */
void tsri_store_address(const tsr_store *store, char *buf, size_t size);
/* tsr_store_open with the prefix put before all keys, and before the name under which ranks meet:
 * runs, or attempts at one, that share a server, and do not see each other. NULL or "": none. */
tsr_status tsri_store_open_under(const char *url, const tsr_store_opts *opts, const char *prefix,
                                 tsr_store **out_store);
/* Whether a text is a token: 16 to 256 printable characters without blanks. from: where it is from,
 * for the error, TSR_ERR_INVALID, which does not show it. */
tsr_status tsri_store_check_token(const char *from, const char *text);
/* TESSERA_STORE_HOSTED: whether somebody else than rank 0 serves where MASTER_ADDR and MASTER_PORT
 * say; false if it is not set. Errors: TSR_ERR_INVALID. */
tsr_status tsri_store_env_hosted(bool *out_hosted);
/* Joins without waiting for the others (rank and size are not told to the store, and need not be
 * given). Never serves: a server, or a file in which a run is under way, is waited for. */
tsr_status tsri_store_connect(const char *url, const tsr_store_opts *opts, tsr_store **out_store);

#endif
