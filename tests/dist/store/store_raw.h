/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a store's wire, for tests that are no proper client or server. */
#ifndef TESSERA_TESTS_STORE_RAW_H
#define TESSERA_TESTS_STORE_RAW_H

#include "src/comm/store/wire.h"

/* Connects to the port of loopback. */
int raw_connect(int port);
/* Sends as much as the other side takes. */
void say(int fd, const void *data, size_t bytes);
/* Greets as a client does, with this process's token, and is welcome. */
void say_greeting(int fd);
/* Greets as a server does, one byte at a time if `slowly`, with `between` called before each;
 * returns false if the client goes away. */
bool answer_greeting(int fd, bool slowly, void (*between)(void *), void *arg);
/* The server closes the connection, and soon; what it says before that is thrown away. */
void expect_closed(int fd);
/* Writes a request's head; returns its size. */
size_t request(unsigned char *to, uint64_t payload, uint64_t op, double wait_s);

#endif
