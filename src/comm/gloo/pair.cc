/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/gloo/pair.h"

#include <gloo/common/error.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tsri {

namespace {

namespace tcp = gloo::transport::tcp;
using Clock = std::chrono::steady_clock;

constexpr size_t SECRET_BYTES = 32;
constexpr size_t MOST_CALLERS = 64; /* the oldest makes way */
constexpr int LOOK_MS = 20;         /* how often to look for the end */
constexpr auto RETRY_AFTER =
    std::chrono::milliseconds(10);                       /* of a connection that was hung up on */
constexpr auto CONNECT_WITHIN = std::chrono::seconds(1); /* else it is tried again */

/* An invitation to one connection: the member's port, and its secret. */
struct Invitation {
    struct sockaddr_storage at;
    unsigned char secret[SECRET_BYTES];
};

[[noreturn]] void fail_lost(const std::string &text)
{
    throw gloo::IoException(text);
}

[[noreturn]] void fail_call(const char *what, int error)
{
    fail_lost(std::string(what) + ": " + std::strerror(error));
}

class Descriptor {
  public:
    explicit Descriptor(int fd = -1) : fd_(fd)
    {
    }
    ~Descriptor()
    {
        reset(-1);
    }
    Descriptor(Descriptor &&other) noexcept : fd_(other.release())
    {
    }
    Descriptor &operator=(Descriptor &&other) noexcept
    {
        reset(other.release());
        return *this;
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;

    int get() const
    {
        return fd_;
    }
    int release()
    {
        int fd = fd_;
        fd_ = -1;
        return fd;
    }
    void reset(int fd)
    {
        if (fd_ >= 0)
            ::close(fd_);
        fd_ = fd;
    }

  private:
    int fd_;
};

/* Takes the same time wherever they differ. */
bool is_same(const unsigned char *a, const unsigned char *b)
{
    unsigned char differs = 0;
    for (size_t i = 0; i < SECRET_BYTES; i++)
        differs = static_cast<unsigned char>(differs | (a[i] ^ b[i]));
    return differs == 0;
}

socklen_t bytes_of(const struct sockaddr_storage &at)
{
    return at.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* The first bytes of a connection, as they come in. */
struct Hello {
    size_t got = 0;
    unsigned char bytes[SECRET_BYTES];

    /* Returns false if the other side has closed the connection. */
    bool read(int fd)
    {
        while (got < SECRET_BYTES) {
            ssize_t n = recv(fd, bytes + got, SECRET_BYTES - got, MSG_DONTWAIT);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0 && errno == EAGAIN)
                return true;
            if (n <= 0)
                return false;
            got += static_cast<size_t>(n);
        }
        return true;
    }
    bool is_whole() const
    {
        return got == SECRET_BYTES;
    }
};

struct Caller {
    Descriptor fd;
    Hello hello;
};

/* A first message: there is room for it in a new connection. */
bool say(int fd, const unsigned char *secret)
{
    return send(fd, secret, SECRET_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) == SECRET_BYTES;
}

/* Runs a function on a device's thread, which looks after all its connections: nothing comes in
 * meanwhile. Throws what the function throws. */
class OnThread final : public tcp::Handler {
  public:
    OnThread(tcp::Device &device, const std::function<void()> &work)
        : device_(device), work_(work), wake_(eventfd(1, EFD_CLOEXEC))
    {
        if (wake_.get() < 0)
            fail_call("eventfd", errno);
        std::unique_lock<std::mutex> lock(lock_);
        device_.registerDescriptor(wake_.get(), EPOLLIN, this);
        changed_.wait(lock, [&] { return is_done_; });
        if (thrown_)
            std::rethrow_exception(thrown_);
    }

    void handleEvents(int) override
    {
        std::lock_guard<std::mutex> lock(lock_);
        try {
            device_.unregisterDescriptor(wake_.get(), this);
            work_();
        } catch (...) {
            thrown_ = std::current_exception();
        }
        is_done_ = true;
        changed_.notify_all();
    }

  private:
    tcp::Device &device_;
    const std::function<void()> &work_;
    Descriptor wake_;
    std::mutex lock_;
    std::condition_variable changed_;
    bool is_done_ = false;
    std::exception_ptr thrown_;
};

class Pair final : public tcp::Pair {
  public:
    /* On the device's thread, so that nobody comes by the port that Gloo opens. */
    Pair(tcp::Context *context, tcp::Device *device, int peer, std::chrono::milliseconds timeout)
        : tcp::Pair(context, device, peer, timeout), listens_(context->rank > peer)
    {
        std::lock_guard<std::mutex> lock(m_);
        struct sockaddr_storage at = self_.getSockaddr();
        device_->unregisterDescriptor(fd_, this);
        ::close(fd_);
        fd_ = -1;
        state_ = INITIALIZING;
        if (getrandom(mine_.secret, sizeof mine_.secret, 0) != sizeof mine_.secret)
            fail_call("getrandom", errno);
        listen_at(at);
    }

    const Invitation &invitation() const
    {
        return mine_;
    }

    void connect(const std::vector<char> &bytes) override
    {
        Invitation its;
        if (bytes.size() != sizeof its)
            throw std::runtime_error("the store has something else than a peer's address");
        std::memcpy(&its, bytes.data(), sizeof its);
        if (its.at.ss_family != mine_.at.ss_family)
            throw std::runtime_error("the store has a peer's address of another family");
        const auto until = Clock::now() + 5 * timeout_;
        Descriptor fd = listens_ ? accept_peer(its, until) : dial_peer(its, until);
        take(std::move(fd));
    }

    /* Gloo throws where a peer says what no peer does, which would end the process here. */
    void handleReadWrite(int events) override
    {
        try {
            tcp::Pair::handleReadWrite(events);
        } catch (const std::exception &e) {
            if (!ex_)
                signalException(e.what());
        }
    }

  private:
    void listen_at(struct sockaddr_storage at)
    {
        socklen_t bytes = bytes_of(at);
        if (at.ss_family == AF_INET6)
            reinterpret_cast<struct sockaddr_in6 *>(&at)->sin6_port = 0;
        else
            reinterpret_cast<struct sockaddr_in *>(&at)->sin_port = 0;
        if (!listens_) {
            mine_.at = at;
            return;
        }
        port_.reset(socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (port_.get() < 0)
            fail_call("socket", errno);
        if (bind(port_.get(), reinterpret_cast<struct sockaddr *>(&at), bytes) != 0)
            fail_call("bind", errno);
        if (::listen(port_.get(), SOMAXCONN) != 0)
            fail_call("listen", errno);
        bytes = sizeof mine_.at;
        if (getsockname(port_.get(), reinterpret_cast<struct sockaddr *>(&mine_.at), &bytes) != 0)
            fail_call("getsockname", errno);
    }

    /* Throws if nothing more is to be waited for. */
    void check_over(Clock::time_point until)
    {
        std::lock_guard<std::mutex> lock(m_);
        if (state_ == CLOSED)
            fail_lost("the connection was closed while it was made");
        if (Clock::now() > until)
            fail_lost("Connect timeout");
    }

    /* Waits a while for the descriptor; returns whether it is ready. */
    bool wait_for(int fd, short events, Clock::time_point until)
    {
        struct pollfd p = {fd, events, 0};
        check_over(until);
        return poll(&p, 1, LOOK_MS) > 0;
    }

    void accept_some(std::deque<Caller> &callers)
    {
        for (size_t i = 0; i < MOST_CALLERS; i++) {
            int fd = accept4(port_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
                return;
            if (fd < 0 && callers.empty())
                fail_call("accept", errno);
            if (fd < 0 || callers.size() == MOST_CALLERS)
                callers.pop_front();
            if (fd >= 0)
                callers.push_back({Descriptor(fd), {}});
        }
    }

    /* The first of them that has the secret, and is still there; drops those that do not. */
    Descriptor find_peer(std::deque<Caller> &callers, const Invitation &its)
    {
        for (auto c = callers.begin(); c != callers.end();) {
            const bool is_there = c->hello.read(c->fd.get());
            if (is_there && !c->hello.is_whole()) {
                ++c;
                continue;
            }
            if (is_there && is_same(c->hello.bytes, mine_.secret) && say(c->fd.get(), its.secret))
                return std::move(c->fd);
            c = callers.erase(c);
        }
        return Descriptor();
    }

    Descriptor accept_peer(const Invitation &its, Clock::time_point until)
    {
        std::deque<Caller> callers;
        std::vector<struct pollfd> fds;
        for (;;) {
            fds.assign(1, {port_.get(), POLLIN, 0});
            for (const Caller &c : callers)
                fds.push_back({c.fd.get(), POLLIN, 0});
            check_over(until);
            if (poll(fds.data(), fds.size(), LOOK_MS) <= 0)
                continue;
            accept_some(callers);
            Descriptor fd = find_peer(callers, its);
            if (fd.get() >= 0)
                return fd;
        }
    }

    /* One connection to the peer; none: it is to be tried again. */
    Descriptor dial_once(const Invitation &its, Clock::time_point until)
    {
        const auto give_up = Clock::now() + CONNECT_WITHIN;
        Descriptor fd(socket(its.at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (fd.get() < 0)
            fail_call("socket", errno);
        int error = 0;
        socklen_t bytes = sizeof error;
        if (::connect(fd.get(), reinterpret_cast<const struct sockaddr *>(&its.at),
                      bytes_of(its.at)) != 0 &&
            errno != EINPROGRESS)
            fail_call("connect", errno);
        while (!wait_for(fd.get(), POLLOUT, until))
            if (Clock::now() > give_up)
                return Descriptor();
        if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error)
            fail_call(("connect " + tcp::Address(its.at).str()).c_str(), error ? error : errno);
        Hello answer;
        if (!say(fd.get(), its.secret))
            return Descriptor();
        while (!answer.is_whole()) {
            if (wait_for(fd.get(), POLLIN, until) && !answer.read(fd.get()))
                return Descriptor();
        }
        if (!is_same(answer.bytes, mine_.secret))
            fail_lost("what listens at " + tcp::Address(its.at).str() + " is no rank of this run");
        return fd;
    }

    Descriptor dial_peer(const Invitation &its, Clock::time_point until)
    {
        for (;;) {
            Descriptor fd = dial_once(its, until);
            if (fd.get() >= 0)
                return fd;
            std::this_thread::sleep_for(RETRY_AFTER);
        }
    }

    /* From here on it is Gloo's. */
    void take(Descriptor fd)
    {
        const int on = 1;
        std::lock_guard<std::mutex> lock(m_);
        if (state_ == CLOSED)
            fail_lost("the connection was closed while it was made");
        if (setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
            fail_call("setsockopt", errno);
        self_ = tcp::Address::fromSockName(fd.get());
        peer_ = tcp::Address::fromPeerName(fd.get());
        port_.reset(-1);
        fd_ = fd.release();
        changeState(CONNECTED);
        device_->registerDescriptor(fd_, EPOLLIN, this);
    }

    const bool listens_;
    Descriptor port_;
    Invitation mine_ = {};
};

} // namespace

std::shared_ptr<tcp::Device> make_device(const char *host)
{
    return std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(tcp::attr(host)));
}

Context::Context(std::shared_ptr<tcp::Device> device, int index, int n)
    : tcp::Context(std::move(device), index, n)
{
}

std::unique_ptr<gloo::transport::Pair> &Context::createPair(int peer)
{
    pairs_[static_cast<size_t>(peer)] =
        std::make_unique<Pair>(this, device_.get(), peer, getTimeout());
    return pairs_[static_cast<size_t>(peer)];
}

void Context::create_pairs()
{
    OnThread(*device_, [this] {
        for (int i = 0; i < size; i++)
            if (i != rank)
                createPair(i)->setLocalRank(0);
    });
}

std::vector<char> Context::address_for(int peer)
{
    const Invitation &mine = dynamic_cast<Pair &>(*getPair(peer)).invitation();
    const char *bytes = reinterpret_cast<const char *>(&mine);
    return std::vector<char>(bytes, bytes + sizeof mine);
}

} // namespace tsri
