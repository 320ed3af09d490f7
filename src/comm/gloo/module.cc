/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtessera_gloo.so: Gloo's TCP transport behind the C face of api.h. The parts of a call, the
 * order in which values are reduced, the answer to a failure are the library's; this file connects
 * ranks and moves bytes between them. Every function that can throw is caught here.
 */
#include "src/comm/gloo/api.h"
#include "src/comm/gloo/pair.h"

#include <gloo/common/error.h>
#include <gloo/config.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include <pthread.h>

using gloo::transport::UnboundBuffer;

struct tsri_gloo_device {
    std::shared_ptr<gloo::transport::tcp::Device> device;
};

namespace {

/* Gloo's context, with the connections made by us: one by one, with addresses that the caller has
 * passed around. */
class Mesh : public gloo::Context {
  public:
    Mesh(const std::shared_ptr<gloo::transport::tcp::Device> &device, int index, int n,
         std::chrono::milliseconds connect)
        : gloo::Context(index, n), pairs_(std::make_shared<tsri::Context>(device, index, n))
    {
        device_ = device;
        transportContext_ = pairs_;
        pairs_->setTimeout(connect);
        pairs_->create_pairs();
    }

    std::unique_ptr<gloo::transport::Pair> &pair(int i)
    {
        return pairs_->getPair(i);
    }

    std::vector<char> address_for(int i)
    {
        return pairs_->address_for(i);
    }

  private:
    std::shared_ptr<tsri::Context> pairs_;
};

void say(tsri_gloo_error *err, const char *text)
{
    std::snprintf(err->text, sizeof err->text, "%s", text);
}

/* Calls f, which returns a result; what it throws becomes one. */
template <typename F> tsri_gloo_result guarded(tsri_gloo_error *err, F f)
{
    try {
        return f();
    } catch (const gloo::IoException &e) {
        say(err, e.what());
        return TSRI_GLOO_LOST;
    } catch (const std::bad_alloc &) {
        say(err, "no memory");
        return TSRI_GLOO_NO_MEMORY;
    } catch (const std::exception &e) {
        say(err, e.what());
        return TSRI_GLOO_FAILED;
    } catch (...) {
        say(err, "an exception of no known type");
        return TSRI_GLOO_FAILED;
    }
}

/* Threads made meanwhile take no signals: those are the program's, and a write to a peer that is
 * gone must not end the process by SIGPIPE. */
class QuietThreads {
  public:
    QuietThreads()
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
    }
    ~QuietThreads()
    {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    QuietThreads(const QuietThreads &) = delete;
    QuietThreads &operator=(const QuietThreads &) = delete;

  private:
    sigset_t before;
};

/* Guards this thread's own writes: SIGPIPE is taken away again, unless there was one before. */
class NoPipeSignal {
  public:
    NoPipeSignal()
    {
        sigset_t pending;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe, &before);
        sigpending(&pending);
        was_pending = sigismember(&pending, SIGPIPE) == 1;
    }
    ~NoPipeSignal()
    {
        const struct timespec now = {0, 0};
        while (!was_pending && sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR)
            ;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    NoPipeSignal(const NoPipeSignal &) = delete;
    NoPipeSignal &operator=(const NoPipeSignal &) = delete;

  private:
    sigset_t pipe, before;
    bool was_pending;
};

} // namespace

struct tsri_gloo_post {
    struct Part {
        std::unique_ptr<UnboundBuffer> buffer;
        int peer;
        bool send;
    };
    std::vector<Part> parts;
    tsri_gloo_post *next = nullptr, **link = nullptr; /* among the mesh's */
};

struct tsri_gloo_mesh {
    std::shared_ptr<Mesh> context;
    std::mutex lock; /* of the rest, and of all posts' parts */
    bool interrupted = false;
    tsri_gloo_post *posts = nullptr; /* to be woken by an interrupt */
};

namespace {

tsri_gloo_result device_open(const char *host, tsri_gloo_device **out_device, tsri_gloo_error *err)
{
    return guarded(err, [&] {
        QuietThreads quiet;
        auto d = std::make_unique<tsri_gloo_device>();
        d->device = tsri::make_device(host);
        *out_device = d.release();
        return TSRI_GLOO_OK;
    });
}

void device_close(tsri_gloo_device *device)
{
    delete device;
}

tsri_gloo_result mesh_open(tsri_gloo_device *device, int n, int index, double connect_s,
                           tsri_gloo_mesh **out_mesh, tsri_gloo_error *err)
{
    return guarded(err, [&] {
        /* A pair waits five times its timeout for its connection. */
        auto ms = std::chrono::milliseconds(static_cast<int64_t>(connect_s * 1000 / 5) + 1);
        auto m = std::make_unique<tsri_gloo_mesh>();
        m->context = std::make_shared<Mesh>(device->device, index, n, ms);
        *out_mesh = m.release();
        return TSRI_GLOO_OK;
    });
}

size_t mesh_address(tsri_gloo_mesh *mesh, int peer, char buf[TSRI_GLOO_ADDRESS_BYTES])
{
    tsri_gloo_error err;
    size_t bytes = 0;
    guarded(&err, [&] {
        const std::vector<char> v = mesh->context->address_for(peer);
        if (v.size() <= TSRI_GLOO_ADDRESS_BYTES) {
            std::memcpy(buf, v.data(), v.size());
            bytes = v.size();
        }
        return TSRI_GLOO_OK;
    });
    return bytes;
}

tsri_gloo_result mesh_connect(tsri_gloo_mesh *mesh, int peer, const char *address, size_t bytes,
                              tsri_gloo_error *err)
{
    return guarded(err, [&] {
        mesh->context->pair(peer)->connect(std::vector<char>(address, address + bytes));
        return TSRI_GLOO_OK;
    });
}

/* Gloo always has a limit; ours is that of who waits for the call, who interrupts. */
const std::chrono::milliseconds for_ever = std::chrono::hours(24 * 365);

using Part = tsri_gloo_post::Part;

void mesh_drop(tsri_gloo_mesh *mesh, tsri_gloo_post *post)
{
    if (!post)
        return;
    {
        std::lock_guard<std::mutex> guard(mesh->lock);
        *post->link = post->next;
        if (post->next)
            post->next->link = post->link;
    }
    delete post;
}

struct Drop {
    tsri_gloo_mesh *mesh;
    void operator()(tsri_gloo_post *post) const
    {
        mesh_drop(mesh, post);
    }
};

/* From now on an interrupt reaches it. */
tsri_gloo_post *new_post(tsri_gloo_mesh *mesh)
{
    auto *post = new tsri_gloo_post;
    std::lock_guard<std::mutex> guard(mesh->lock);
    post->next = mesh->posts;
    post->link = &mesh->posts;
    if (post->next)
        post->next->link = &post->next;
    mesh->posts = post;
    return post;
}

tsri_gloo_result mesh_make(tsri_gloo_mesh *mesh, int npieces, const tsri_gloo_piece *pieces,
                           tsri_gloo_post **post, tsri_gloo_error *err)
{
    return guarded(err, [&] {
        if (!*post)
            *post = new_post(mesh);
        std::lock_guard<std::mutex> guard(mesh->lock);
        std::vector<Part> &parts = (*post)->parts;
        parts.clear();
        parts.reserve(static_cast<size_t>(npieces));
        for (int i = 0; i < npieces; i++)
            parts.push_back({mesh->context->createUnboundBuffer(pieces[i].data, pieces[i].bytes),
                             pieces[i].peer, pieces[i].send});
        return TSRI_GLOO_OK;
    });
}

bool is_interrupted(tsri_gloo_mesh *mesh)
{
    std::lock_guard<std::mutex> guard(mesh->lock);
    return mesh->interrupted;
}

void note(int *at, int peer)
{
    __atomic_store_n(at, peer, __ATOMIC_RELAXED);
}

/* Receives first, so that peers need not ask for room. */
tsri_gloo_result mesh_post(tsri_gloo_mesh *mesh, uint64_t slot, tsri_gloo_post *post, int *at,
                           tsri_gloo_error *err)
{
    say(err, "interrupted");
    return guarded(err, [&] {
        if (is_interrupted(mesh))
            return TSRI_GLOO_INTERRUPTED;
        for (int sends = 0; sends < 2; sends++)
            for (Part &p : post->parts) {
                if (p.send != (sends == 1))
                    continue;
                note(at, p.peer);
                if (p.send)
                    p.buffer->send(p.peer, slot);
                else
                    p.buffer->recv(p.peer, slot);
            }
        note(at, -1);
        return TSRI_GLOO_OK;
    });
}

tsri_gloo_result mesh_wait(tsri_gloo_mesh *mesh, tsri_gloo_post *post, int first, int end, int *at,
                           uint64_t *moved, tsri_gloo_error *err)
{
    (void)mesh;
    say(err, "interrupted");
    return guarded(err, [&] {
        for (int sends = 0; sends < 2; sends++)
            for (int i = first; i < end; i++) {
                Part &p = post->parts[static_cast<size_t>(i)];
                if (p.send != (sends == 1))
                    continue;
                note(at, p.peer);
                if (!(p.send ? p.buffer->waitSend(nullptr, for_ever)
                             : p.buffer->waitRecv(nullptr, for_ever)))
                    return TSRI_GLOO_INTERRUPTED;
                __atomic_fetch_add(moved, 1, __ATOMIC_RELAXED);
            }
        note(at, -1);
        return TSRI_GLOO_OK;
    });
}

tsri_gloo_result mesh_any(tsri_gloo_mesh *mesh, uint64_t slot, void *data, size_t bytes, int n,
                          const int *from, int *at, uint64_t *moved, int *out_peer,
                          tsri_gloo_error *err)
{
    say(err, "interrupted");
    return guarded(err, [&] {
        std::vector<int> members;
        for (int m = 0; m < n; m++)
            if (from[m])
                members.push_back(m);
        std::unique_ptr<tsri_gloo_post, Drop> post(new_post(mesh), Drop{mesh});
        {
            std::lock_guard<std::mutex> guard(mesh->lock);
            post->parts.push_back({mesh->context->createUnboundBuffer(data, bytes), -1, false});
        }
        if (is_interrupted(mesh))
            return TSRI_GLOO_INTERRUPTED;
        /* Gloo tells of a member's death only those that wait for it by name. */
        bool is_one = members.size() == 1;
        note(at, is_one ? members[0] : -1);
        if (is_one)
            post->parts[0].buffer->recv(members[0], slot);
        else
            post->parts[0].buffer->recv(members, slot);
        if (!post->parts[0].buffer->waitRecv(out_peer, for_ever))
            return TSRI_GLOO_INTERRUPTED;
        __atomic_fetch_add(moved, 1, __ATOMIC_RELAXED);
        note(at, -1);
        return TSRI_GLOO_OK;
    });
}

/* A receive that nobody sends to: Gloo refuses it where the connection is gone. */
tsri_gloo_result mesh_probe(tsri_gloo_mesh *mesh, int peer, tsri_gloo_error *err)
{
    NoPipeSignal quiet;
    return guarded(err, [&] {
        const uint64_t slot = ~UINT64_C(0);
        char byte;
        mesh->context->createUnboundBuffer(&byte, 1)->recv(peer, slot);
        return TSRI_GLOO_OK;
    });
}

void mesh_interrupt(tsri_gloo_mesh *mesh)
{
    tsri_gloo_error err;
    {
        std::lock_guard<std::mutex> guard(mesh->lock);
        mesh->interrupted = true;
        for (tsri_gloo_post *post = mesh->posts; post; post = post->next)
            for (Part &p : post->parts) {
                p.buffer->abortWaitRecv();
                p.buffer->abortWaitSend();
            }
    }
    guarded(&err, [&] {
        mesh->context->closeConnections();
        return TSRI_GLOO_OK;
    });
}

/* Without Gloo's close, which throws away what is on its way. */
void mesh_close(tsri_gloo_mesh *mesh)
{
    delete mesh;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const tsri_gloo_api api = {
    sizeof api,
    TSRI_GLOO_ABI,
    "Gloo " TEXT(GLOO_VERSION_MAJOR) "." TEXT(GLOO_VERSION_MINOR) "." TEXT(GLOO_VERSION_PATCH),
    device_open,
    device_close,
    mesh_open,
    mesh_address,
    mesh_connect,
    mesh_make,
    mesh_post,
    mesh_wait,
    mesh_drop,
    mesh_any,
    mesh_probe,
    mesh_interrupt,
    mesh_close,
};

} // namespace

extern "C" __attribute__((visibility("default"))) const tsri_gloo_api *tsri_gloo_module(void);

const tsri_gloo_api *tsri_gloo_module(void)
{
    return &api;
}
