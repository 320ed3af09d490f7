/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of stores (tessera/store.h).
 *
 *   store.c         addresses, checks, the calls
 *   store_url.c     reading an address
 *   store_tcp.c     the client of a server
 *   store_server.c  the server: a thread of rank 0, or of the launcher
 *   store_file.c    the file
 */
#ifndef TESSERA_COMM_STORE_H
#define TESSERA_COMM_STORE_H

#include <tessera/store.h>

/* A server, on a thread of its own. */
typedef struct tsri_store_server tsri_store_server;
/* Serves at this address alone ("127.0.0.1", a name, "::1"). port 0: a free one. Ends by itself
 * when nobody has been connected for idle_s seconds (0: never). Errors: TSR_ERR_IO naming address,
 * port and what is wrong. */
tsr_status tsri_store_server_start(const char *host, int port, double idle_s,
                                   tsri_store_server **out_server);
int tsri_store_server_port(const tsri_store_server *server);
/* Closes all connections and the port. NULL is fine. */
void tsri_store_server_stop(tsri_store_server *server);

/* Keys from now on have this put before them ("run/attempt/"): those of tsr_store_open's meeting
 * are under it already. */
tsr_status tsri_store_prefix(tsr_store *store, const char *prefix);
/* The address of this machine by which it reaches the server; "" for a file. */
void tsri_store_address(const tsr_store *store, char *buf, size_t size);
/* Joins without waiting for the others (rank and size are not told to the store). */
tsr_status tsri_store_connect(const char *url, const tsr_store_opts *opts, tsr_store **out_store);

#endif
