/* SPDX-License-Identifier: Apache-2.0 */
/* How a store's client and server greet each other, and prove that they have the same token. */
#include "src/comm/store/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

tsr_status tsri_store_check_token(const char *from, const char *text)
{
    const size_t bytes = strlen(text);
    if (bytes < TSRI_STORE_MIN_TOKEN || bytes > TSRI_STORE_MAX_TOKEN)
        return tsri_fail(TSR_ERR_INVALID,
                         "store: a token of %zu characters in %s: legal are %d to %d, as "
                         "`openssl rand -hex 32` makes them",
                         bytes, from, TSRI_STORE_MIN_TOKEN, TSRI_STORE_MAX_TOKEN);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return tsri_fail(TSR_ERR_INVALID,
                             "store: character %zu of the token in %s is a blank or can't be "
                             "printed: legal are letters, digits and signs",
                             i + 1, from);
    return TSR_OK;
}

tsr_status tsri_store_env_token(tsri_store_token *out)
{
    const char *text = getenv("TESSERA_STORE_TOKEN");
    out->bytes = 0;
    if (!text || !*text)
        return TSR_OK;
    TSRI_TRY(tsri_store_check_token("TESSERA_STORE_TOKEN", text));
    out->bytes = strlen(text);
    memcpy(out->text, text, out->bytes);
    return TSR_OK;
}

tsr_status tsri_wire_greeting(const tsri_store_token *token, unsigned char out[TSRI_WIRE_GREETING])
{
    memcpy(out, TSRI_WIRE_MAGIC, 8);
    tsri_wire_put(out + 8, TSRI_WIRE_VERSION, 4);
    tsri_wire_put(out + 12, token->bytes ? TSRI_WIRE_HAS_TOKEN : 0, 4);
    if (getrandom(out + TSRI_WIRE_SALUTE, TSRI_WIRE_NONCE, 0) != TSRI_WIRE_NONCE)
        return tsri_fail(TSR_ERR_IO, "store: no random numbers: %s", strerror(errno));
    return TSR_OK;
}

void tsri_wire_prove(const tsri_store_token *token, bool is_server,
                     const unsigned char client[TSRI_WIRE_GREETING],
                     const unsigned char server[TSRI_WIRE_GREETING],
                     unsigned char out[TSRI_WIRE_PROOF])
{
    tsri_hmac h;
    tsri_hmac_init(&h, token->text, token->bytes);
    tsri_hmac_add(&h, is_server ? "server" : "client", 6);
    tsri_hmac_add(&h, client, TSRI_WIRE_GREETING);
    tsri_hmac_add(&h, server, TSRI_WIRE_GREETING);
    tsri_hmac_finish(&h, out);
}
