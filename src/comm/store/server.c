/* SPDX-License-Identifier: Apache-2.0 */
/* A store's server: its port, its thread, its timers. */
#include "src/comm/store/server_inside.h"
#include "src/core/clock.h"
#include "src/core/mem.h"
#include "src/core/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    ACCEPT_AT_ONCE = 64,
};
static const double accept_pause_s = 0.1; /* when there are no descriptors left */

void tsri_server_set_timer(tsri_store_server *s, double at_s)
{
    if (s->timers.scan_at_s == 0 || at_s < s->timers.scan_at_s)
        s->timers.scan_at_s = at_s;
}

void tsri_server_make_ready(tsri_store_server *s, tsri_conn *c)
{
    if (c->ready || c->dead)
        return;
    c->ready = true;
    c->next_ready = NULL;
    *(s->last_ready ? &s->last_ready->next_ready : &s->first_ready) = c;
    s->last_ready = c;
}

void tsri_server_count_members(tsri_store_server *s, int more)
{
    pthread_mutex_lock(&s->lock);
    s->members += more;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void tsri_server_go_on(tsri_store_server *s)
{
    while (s->first_ready) {
        tsri_conn *c = s->first_ready;
        s->first_ready = c->next_ready;
        if (!s->first_ready)
            s->last_ready = NULL;
        c->ready = false;
        if (!c->dead)
            tsri_serve_again(s, c);
    }
}

static void watch_port(tsri_store_server *s, bool on)
{
    for (int i = 0; i < s->nlisten; i++) {
        struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = &s->listen_fd[i]};
        epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listen_fd[i], &event);
    }
}

static void close_port(tsri_store_server *s)
{
    for (int i = 0; i < s->nlisten; i++) {
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen_fd[i], NULL);
        shutdown(s->listen_fd[i], SHUT_RDWR);
        close(s->listen_fd[i]);
    }
    s->nlisten = 0;
    s->timers.accept_at_s = 0;
}

/* The listening socket that an event is of, which may be closed by now; -1: it is of none. */
static int index_of_listener(const tsri_store_server *s, const void *of)
{
    for (int i = 0; i < TSRI_SERVER_MAX_ADDRESSES; i++)
        if (of == &s->listen_fd[i])
            return i;
    return -1;
}

static void accept_some(tsri_store_server *s, int listen_fd)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            tsri_limit_admit(s, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            tsri_limit_drop_weakest(s);
            s->timers.accept_at_s = tsri_now_s() + accept_pause_s;
            watch_port(s, false);
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

static void look_at_timers(tsri_store_server *s)
{
    const double now_s = tsri_now_s();
    tsri_conn *next;
    if (s->timers.accept_at_s > 0 && now_s >= s->timers.accept_at_s) {
        s->timers.accept_at_s = 0;
        watch_port(s, true);
    }
    if (s->timers.scan_at_s == 0 || now_s < s->timers.scan_at_s)
        return;
    s->timers.scan_at_s = 0;
    for (tsri_conn *c = s->first; c; c = next) {
        const double until_s = tsri_conn_deadline(c);
        next = c->next;
        if (until_s > now_s)
            tsri_server_set_timer(s, until_s); /* INFINITY does no harm */
        else if (c->parked)
            tsri_serve_timeout(s, c);
        else
            tsri_conn_kill(s, c);
    }
}

/* The time that epoll may sleep, in milliseconds. */
static int sleep_ms(const tsri_store_server *s)
{
    double at_s = INFINITY, left_s;
    if (s->timers.scan_at_s > 0)
        at_s = fmin(at_s, s->timers.scan_at_s);
    if (s->timers.accept_at_s > 0)
        at_s = fmin(at_s, s->timers.accept_at_s);
    if (s->idle_s > 0 && s->greeted == 0)
        at_s = fmin(at_s, s->timers.idle_since_s + s->idle_s);
    left_s = at_s - tsri_now_s();
    return left_s > 3600 ? 3600000 : left_s <= 0 ? 0 : (int)(left_s * 1e3) + 1;
}

/* Does what the other threads have asked for; returns whether to go on. */
static bool look_at_wishes(tsri_store_server *s)
{
    uint64_t ignored;
    if (read(s->wake_fd, &ignored, sizeof ignored) < 0)
        ignored = 0; /* nobody woke us */
    pthread_mutex_lock(&s->lock);
    const bool drain = s->must_drain, stop = s->must_stop;
    pthread_mutex_unlock(&s->lock);
    if (drain)
        close_port(s);
    return !stop;
}

/* Clients that still wait for others hear that it is in vain. */
static void end(tsri_store_server *s)
{
    close_port(s);
    for (tsri_conn *c = s->first, *next; c; c = next) {
        next = c->next;
        if (c->parked && !c->parks.entry)
            tsri_meet_give_up(s, c);
    }
    tsri_server_go_on(s);
    while (s->first)
        tsri_conn_kill(s, s->first);
    tsri_conn_bury(s);
    pthread_mutex_lock(&s->lock);
    s->over = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void *serve(void *arg)
{
    tsri_store_server *s = arg;
    struct epoll_event event[EVENTS];
    s->timers.idle_since_s = tsri_now_s();
    while (look_at_wishes(s)) {
        int n = epoll_wait(s->epoll_fd, event, EVENTS, sleep_ms(s));
        if (n < 0 && errno != EINTR)
            break;
        for (int i = 0; i < n; i++) {
            const int listener = index_of_listener(s, event[i].data.ptr);
            if (listener >= 0 && listener < s->nlisten)
                accept_some(s, s->listen_fd[listener]);
            else if (listener < 0 && event[i].data.ptr != &s->wake_fd)
                tsri_conn_event(s, event[i].data.ptr, event[i].events);
            tsri_server_go_on(s);
        }
        look_at_timers(s);
        tsri_server_go_on(s);
        tsri_conn_bury(s);
        if (s->idle_s > 0 && s->greeted == 0 && tsri_now_s() >= s->timers.idle_since_s + s->idle_s)
            break;
    }
    end(s);
    return NULL;
}

static const char *listen_error_text(int error)
{
    switch (error) {
    case EADDRINUSE:
        return "the port is taken: another program, or another run, listens there";
    case EADDRNOTAVAIL:
        return "this is no address of this machine";
    case EACCES:
        return "ports below 1024 need privileges";
    default:
        return strerror(error);
    }
}

/* A listening socket at one address; -1 and errno. */
static int listen_at(const struct addrinfo *at)
{
    const int on = 1;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void set_port(struct addrinfo *at, int port)
{
    if (at->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)at->ai_addr)->sin6_port = htons((uint16_t)port);
    else if (at->ai_family == AF_INET)
        ((struct sockaddr_in *)(void *)at->ai_addr)->sin_port = htons((uint16_t)port);
}

static int port_of(int fd)
{
    struct sockaddr_storage name = {0};
    socklen_t bytes = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &bytes);
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

static bool is_loopback(const struct addrinfo *at)
{
    if (at->ai_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)(void *)at->ai_addr)->sin6_addr);
    return at->ai_family == AF_INET &&
           ntohl(((struct sockaddr_in *)(void *)at->ai_addr)->sin_addr.s_addr) >> 24 == 127;
}

/* /etc/hosts may have a line twice. */
static bool is_repeated(const struct addrinfo *first, const struct addrinfo *at)
{
    for (; first != at; first = first->ai_next)
        if (first->ai_addrlen == at->ai_addrlen &&
            memcmp(first->ai_addr, at->ai_addr, at->ai_addrlen) == 0)
            return true;
    return false;
}

/* Listens at all addresses that this machine has; returns 0, or why it does at none, or not at one
 * where somebody else does. Notes a name that says nothing to other machines. */
static int listen_at_all(tsri_store_server *s, struct addrinfo *found, const char *host)
{
    bool is_local = strcasecmp(host, "localhost") != 0;
    char text[NI_MAXHOST] = "";
    int error = 0;
    for (struct addrinfo *at = found; at; at = at->ai_next) {
        if (s->nlisten == TSRI_SERVER_MAX_ADDRESSES || is_repeated(found, at))
            continue;
        struct addrinfo here = *at;
        struct sockaddr_storage name = {0};
        memcpy(&name, at->ai_addr, at->ai_addrlen);
        here.ai_addr = (struct sockaddr *)&name;
        if (s->nlisten)
            set_port(&here, s->port); /* it may be 0 in the list */
        int fd = listen_at(&here);
        if (fd < 0) {
            if (!error || error == EADDRNOTAVAIL || error == EAFNOSUPPORT)
                error = errno;
            if (error == EADDRINUSE)
                return error;
            continue;
        }
        s->listen_fd[s->nlisten++] = fd;
        s->port = port_of(fd);
        is_local = is_local && is_loopback(at);
        if (!text[0])
            (void)getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, NULL, 0,
                              NI_NUMERICHOST);
    }
    if (is_local && strcmp(text, host) != 0)
        snprintf(s->note, sizeof s->note,
                 "; rank 0's machine takes '%.200s' for itself, %.60s, where no other machine can "
                 "come: give an address that they reach (or mend its /etc/hosts)",
                 host, text);
    return s->nlisten ? 0 : error;
}

static tsr_status open_port(tsri_store_server *s, const char *host, int port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error)
        return tsri_fail(TSR_ERR_IO, "store: can't serve at %s, port %d: no such host: %s", host,
                         port, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    error = listen_at_all(s, found, host);
    freeaddrinfo(found);
    if (error)
        return tsri_fail(TSR_ERR_IO, "store: can't serve at %s, port %d: %s", host, port,
                         listen_error_text(error));
    return TSR_OK;
}

static tsr_status open_descriptors(tsri_store_server *s)
{
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &s->wake_fd};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    bool all = s->epoll_fd >= 0 && s->wake_fd >= 0 &&
               epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->wake_fd, &wake) == 0;
    for (int i = 0; all && i < s->nlisten; i++) {
        struct epoll_event port = {.events = EPOLLIN, .data.ptr = &s->listen_fd[i]};
        all = epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd[i], &port) == 0;
    }
    return all ? TSR_OK : tsri_fail(TSR_ERR_IO, "store: can't serve: %s", strerror(errno));
}

static tsr_status start_thread(tsri_store_server *s)
{
    int error = tsri_thread_start(&s->thread, "tsr-store", serve, s);
    if (error)
        return tsri_fail(TSR_ERR_IO, "store: can't start the server's thread: %s", strerror(error));
    return TSR_OK;
}

static void free_server(tsri_store_server *s)
{
    for (int i = 0; i < s->nlisten; i++)
        close(s->listen_fd[i]);
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    tsri_meet_finish(s);
    tsri_store_map_finish(&s->map);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    tsri_mem_free(s);
}

tsr_status tsri_store_server_start(const char *host, int port, double idle_s,
                                   tsri_store_server **out_server)
{
    if (!out_server || !host || !*host || port < 0 || port > 65535 || !(idle_s >= 0))
        return tsri_fail(TSR_ERR_INVALID,
                         "store: can't serve at %s, port %d, for %g s: legal are a host, 0 to "
                         "65535, and 0 or more",
                         host && *host ? host : "no host", port, idle_s);
    tsri_store_server *s = tsri_mem_alloc(NULL, sizeof *s);
    tsr_status status;
    TSRI_NEED(s);
    s->epoll_fd = s->wake_fd = -1;
    s->idle_s = idle_s;
    s->map.max_bytes = TSRI_SERVER_MAX_STORED;
    pthread_mutex_init(&s->lock, NULL);
    tsri_cond_init(&s->changed);
    TSRI_GOTO(tsri_store_env_token(&s->token), fail);
    TSRI_GOTO(open_port(s, host, port), fail);
    TSRI_GOTO(open_descriptors(s), fail);
    TSRI_GOTO(start_thread(s), fail);
    *out_server = s;
    return TSR_OK;
fail:
    free_server(s);
    return status;
}

int tsri_store_server_port(const tsri_store_server *server)
{
    return server ? server->port : 0;
}

const char *tsri_store_server_note(const tsri_store_server *server)
{
    return server ? server->note : "";
}

static void wake(tsri_store_server *s)
{
    const uint64_t one = 1;
    while (write(s->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

bool tsri_store_server_running(tsri_store_server *server)
{
    if (!server)
        return false;
    pthread_mutex_lock(&server->lock);
    const bool over = server->over;
    pthread_mutex_unlock(&server->lock);
    return !over;
}

bool tsri_store_server_drain(tsri_store_server *server, double timeout_s)
{
    if (!server)
        return true;
    const struct timespec until = tsri_in_s(timeout_s);
    int error = 0;
    pthread_mutex_lock(&server->lock);
    server->must_drain = true;
    wake(server);
    while (server->members > 0 && !server->over && error == 0)
        error = pthread_cond_timedwait(&server->changed, &server->lock, &until);
    const bool all = server->members == 0;
    pthread_mutex_unlock(&server->lock);
    return all;
}

void tsri_store_server_stop(tsri_store_server *server)
{
    if (!server)
        return;
    pthread_mutex_lock(&server->lock);
    server->must_stop = true;
    pthread_mutex_unlock(&server->lock);
    wake(server);
    pthread_join(server->thread, NULL);
    free_server(server);
}
