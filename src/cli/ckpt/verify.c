/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/ckpt/ckpt.h"

/* Reads all pieces of a checkpoint, without keeping any. */
static tsr_status verify_checkpoint(ckpt_source *s)
{
    for (int i = 0; i < s->index.ntensors; i++) {
        const tsri_ckpt_tensor *t = &s->index.tensors[i];
        for (int p = 0; p < t->npieces; p++) {
            tsri_ckpt_shard *shard;
            const tsri_st_entry *entry;
            TSRI_TRY(ckpt_shard(s, t->pieces[p].file, &shard));
            TSRI_TRY(tsri_ckpt_shard_find(shard, t, p, &entry));
            TSRI_TRY(
                tsri_ckpt_shard_read(shard, entry, 0, (size_t)(entry->end - entry->begin), NULL));
        }
    }
    return TSR_OK;
}

static tsr_status verify(const char *path)
{
    ckpt_source s;
    char number[CLI_NUMBER_MAX];
    double bytes = 0;
    tsr_status status = ckpt_open(path, true, &s);
    if (status == TSR_OK && s.is_checkpoint)
        status = verify_checkpoint(&s);
    for (int i = 0; i < s.ntensors; i++)
        bytes += (double)ckpt_bytes(&s.tensors[i]);
    if (status == TSR_OK)
        cli_say("%s: good, %d tensors, %s%s\n", s.path, s.ntensors, cli_bytes(bytes, number),
                s.is_checkpoint ? "" : " (safetensors: its header alone can be checked)");
    ckpt_close(&s);
    return status;
}

int ckpt_verify(int n, char **paths)
{
    int code = CLI_OK;
    for (int i = 0; i < n; i++)
        if (verify(paths[i]) != TSR_OK)
            code = cli_fail("ckpt verify");
    return code;
}
