/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Safetensors files, tensor by tensor: what is in one, and the values, without a module or a world.
 * (tsr_load and tsr_save of nn.h take a whole module's.) Nothing here is collective.
 *
 *   tsr_safetensors *f;
 *   TRY(tsr_safetensors_open("model.safetensors", &f));
 *   for (int64_t i = 0; i < tsr_safetensors_count(f); i++) {
 *       tsr_safetensors_info t;
 *       TRY(tsr_safetensors_tensor(f, i, &t));
 *       printf("%s: %zu bytes\n", t.name, t.bytes);
 *   }
 *   tsr_safetensors_close(f);
 */
#ifndef TESSERA_SAFETENSORS_H
#define TESSERA_SAFETENSORS_H

#include <tessera/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open file. Its header is in memory, its values are not. Used by one thread at a time. */
typedef struct tsr_safetensors tsr_safetensors;

typedef struct tsr_safetensors_info {
    const char *name;         /* the file's, until it is closed */
    const char *stored_dtype; /* the format's word for it: "F32"; the file's, too */
    tsr_dtype dtype;          /* TSR_DTYPE_NONE: one that Tessera has not, as F8_E4M3 */
    int ndim;                 /* may exceed TSR_MAX_NDIM: dims is then empty */
    tsr_dims dims;
    size_t bytes; /* of its values */
} tsr_safetensors_info;

/*
 * Opens a file and checks its whole header, so that every tensor's bytes are known to be inside of
 * the file. The caller closes *out_safetensors. Errors: TSR_ERR_INVALID (a NULL, an empty path),
 * TSR_ERR_IO, TSR_ERR_FORMAT (what is malformed, and where), TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_safetensors_open(const char *path, tsr_safetensors **out_safetensors);
/* Closes a file. NULL is fine. */
TSR_API void tsr_safetensors_close(tsr_safetensors *safetensors);

/* Returns how many tensors it has; -1 for NULL. */
TSR_API int64_t tsr_safetensors_count(const tsr_safetensors *safetensors);
/* Tells of tensor i, from 0, in the order of the values in the file. TSR_ERR_INVALID if there is
 * none. */
TSR_API tsr_status tsr_safetensors_tensor(const tsr_safetensors *safetensors, int64_t i,
                                          tsr_safetensors_info *out_info);
/* Returns the number of the tensor of that name; -1, without an error, if there is none. */
TSR_API int64_t tsr_safetensors_find(const tsr_safetensors *safetensors, const char *name);
/* Returns the text behind a key of the file's "__metadata__", which is the file's; NULL if there is
 * none. */
TSR_API const char *tsr_safetensors_metadata(const tsr_safetensors *safetensors, const char *key);
/*
 * Reads `bytes` of tensor i from its byte `offset` on: row-major values in its own dtype. data may
 * be NULL where bytes is 0. Errors:
 * TSR_ERR_INVALID (no such tensor, or not all of these bytes are its), TSR_ERR_UNSUPPORTED
 * (a dtype or a number of axes that Tessera has not), TSR_ERR_IO (also if the file has become
 * shorter); `data` may then be partly written.
 */
TSR_API tsr_status tsr_safetensors_read(const tsr_safetensors *safetensors, int64_t i,
                                        size_t offset, void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
