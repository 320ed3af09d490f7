/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gloo's connections, made by us. Gloo itself takes whoever connects first to a port of its own for
 * the peer, and ends the process when that one says what a peer does not. Here each side of a
 * connection has a secret, which goes to the other with its address, through the store; the member
 * of the lower index connects and says the other's secret, is told its own in return, and only
 * then Gloo gets the connection. A caller without the secret is hung up on.
 */
#ifndef TESSERA_COMM_GLOO_PAIR_H
#define TESSERA_COMM_GLOO_PAIR_H

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

#include <memory>
#include <vector>

namespace tsri {

/* A device at one of this machine's addresses. Throws if it is none. */
std::shared_ptr<gloo::transport::tcp::Device> make_device(const char *host);

class Context final : public gloo::transport::tcp::Context {
  public:
    Context(std::shared_ptr<gloo::transport::tcp::Device> device, int index, int n);
    /* Makes the pairs with all other members; each listens from then on. */
    void create_pairs();
    /* The invitation that member `peer` needs for its connection to this one. */
    std::vector<char> address_for(int peer);

  private:
    std::unique_ptr<gloo::transport::Pair> &createPair(int peer) override;
};

} // namespace tsri

#endif
