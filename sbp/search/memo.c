/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/memo.h"

#include "sbp/search/plus.h"

#include <math.h>
#include <string.h>

enum { NONE = -1 };

typedef enum op {
    OP_POINTER,
    OP_CONTENT,
    OP_SELECT,
    OP_ADD,
    OP_MESSAGE,
    OP_JOIN,
    OP_SPLIT,
    OP_FINITE,
    OP_DOMINATE,
} op;

struct tsri_smemo_entry {
    const int *key; /* NULL: free */
    int len;
    int result, second;
    const int *index; /* of what OP_DOMINATE keeps */
    uint64_t hash;
};

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static uint64_t hash_key(const int *key, int len)
{
    uint64_t h = (uint64_t)len;
    for (int i = 0; i < len; i++)
        h = mix(h, (uint32_t)key[i]);
    return mix(h, h >> 32);
}

/* The slot of the key: its entry's, or the free one where it belongs. */
static tsri_smemo_entry *slot_of(tsri_smemo_entry *slots, int nslots, const int *key, int len,
                                 uint64_t hash)
{
    for (uint64_t at = hash;; at++) {
        tsri_smemo_entry *e = &slots[at & (uint64_t)(nslots - 1)];
        if (!e->key ||
            (e->hash == hash && e->len == len && !memcmp(e->key, key, (size_t)len * sizeof *key)))
            return e;
    }
}

static const tsri_smemo_entry *recall(const tsri_smemo *memo, const int *key, int len)
{
    const tsri_smemo_entry *e = slot_of(memo->slots, memo->nslots, key, len, hash_key(key, len));
    return e->key ? e : NULL;
}

/* Whether the result of a key is known: *out. */
static bool knows(const tsri_smemo *memo, const int *key, int len, int *out)
{
    const tsri_smemo_entry *e = recall(memo, key, len);
    if (e)
        *out = e->result;
    return e != NULL;
}

static tsr_status grow_slots(tsri_smemo *memo)
{
    int more = memo->nslots * 2;
    tsri_smemo_entry *slots = tsri_pool_alloc(memo->pool, (size_t)more * sizeof *slots);
    TSRI_NEED(slots);
    for (int i = 0; i < memo->nslots; i++) {
        const tsri_smemo_entry *e = &memo->slots[i];
        if (e->key)
            *slot_of(slots, more, e->key, e->len, e->hash) = *e;
    }
    memo->slots = slots;
    memo->nslots = more;
    return TSR_OK;
}

static tsr_status remember(tsri_smemo *memo, const int *key, int len, int result, int second,
                           const int *index)
{
    if (memo->nused * 2 >= memo->nslots)
        TSRI_TRY(grow_slots(memo));
    uint64_t hash = hash_key(key, len);
    tsri_smemo_entry *e = slot_of(memo->slots, memo->nslots, key, len, hash);
    const int *copy = tsri_pool_dup(memo->pool, key, (size_t)len * sizeof *key);
    TSRI_NEED(copy);
    memo->nused += !e->key;
    *e = (tsri_smemo_entry){copy, len, result, second, index, hash};
    return TSR_OK;
}

tsr_status tsri_sm_init(tsri_smemo *memo, tsri_pool *pool)
{
    *memo = (tsri_smemo){.pool = pool, .nslots = 1 << 10, .work = INFINITY};
    memo->slots = tsri_pool_alloc(pool, (size_t)memo->nslots * sizeof *memo->slots);
    TSRI_NEED(memo->slots);
    return TSR_OK;
}

/* A matrix and its transpose, the latter yet without entries. */
static tsr_status add_matrix(tsri_smemo *memo, int rows, int cols, const double *at, int *out)
{
    int m = memo->nmats;
    for (int i = 0; i < 2; i++) {
        TSRI_NEED(TSRI_PUSH(memo->pool, memo->mats, memo->nmats, memo->cmats));
        memo->mats[memo->nmats++] = (tsri_smatrix){.flip = m + 1};
    }
    memo->mats[m] = (tsri_smatrix){rows, cols, at, m + 1};
    memo->mats[m + 1] = (tsri_smatrix){cols, rows, NULL, m};
    *out = m;
    return TSR_OK;
}

/* A matrix that a key then stands for. */
static tsr_status add_result(tsri_smemo *memo, const int *key, int len, int rows, int cols,
                             const double *at, int *out)
{
    TSRI_TRY(add_matrix(memo, rows, cols, at, out));
    return remember(memo, key, len, *out, NONE, NULL);
}

tsr_status tsri_sm_own(tsri_smemo *memo, const double *at, int rows, int cols, int *out)
{
    return add_matrix(memo, rows, cols, at, out);
}

static double *new_entries(tsri_smemo *memo, int rows, int cols)
{
    return tsri_pool_alloc(memo->pool, (size_t)rows * (size_t)cols * sizeof(double));
}

const double *tsri_sm_rows(tsri_smemo *memo, int m)
{
    tsri_smatrix *x = &memo->mats[m];
    if (x->at)
        return x->at;
    const double *from = memo->mats[x->flip].at;
    double *at = new_entries(memo, x->rows, x->cols);
    if (!at)
        return NULL;
    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j < x->cols; j++)
            at[(int64_t)i * x->cols + j] = from[(int64_t)j * x->rows + i];
    x->at = at;
    return at;
}

static uint64_t hash_entries(const float *f, const double *d, int64_t count)
{
    uint64_t h = 1, bits;
    for (int64_t i = 0; i < count; i++) {
        double x = f ? f[i] : d[i];
        memcpy(&bits, &x, sizeof bits);
        h = mix(h, bits);
    }
    return h;
}

static bool same_entries(const double *at, const float *f, const double *d, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (at[i] != (f ? f[i] : d[i]))
            return false;
    return true;
}

/* One number for equal contents, given as floats or as doubles. */
static tsr_status by_content(tsri_smemo *memo, const float *f, const double *d, int rows, int cols,
                             int *out)
{
    int64_t count = (int64_t)rows * cols;
    uint64_t h = hash_entries(f, d, count);
    int key[] = {OP_CONTENT, rows, cols, (int)(h >> 32), (int)(uint32_t)h};
    const tsri_smemo_entry *e = recall(memo, key, 5);
    if (e && same_entries(memo->mats[e->result].at, f, d, count)) {
        *out = e->result;
        return TSR_OK;
    }
    double *at = new_entries(memo, rows, cols);
    TSRI_NEED(at);
    for (int64_t i = 0; i < count; i++)
        at[i] = f ? f[i] : d[i];
    TSRI_TRY(add_matrix(memo, rows, cols, at, out));
    return e ? TSR_OK : remember(memo, key, 5, *out, NONE, NULL);
}

tsr_status tsri_sm_input(tsri_smemo *memo, const float *cost, int rows, int cols, int *out)
{
    uintptr_t address = (uintptr_t)cost;
    int key[] = {OP_POINTER, rows, cols, (int)(address >> 31), (int)(address & 0x7fffffff)};
    if (knows(memo, key, 5, out))
        return TSR_OK;
    TSRI_TRY(by_content(memo, cost, NULL, rows, cols, out));
    return remember(memo, key, 5, *out, NONE, NULL);
}

tsr_status tsri_sm_vector(tsri_smemo *memo, const double *cost, int count, int *out)
{
    return by_content(memo, NULL, cost, 1, count, out);
}

/* kept->index is memory of the memo, one for equal results of domination: its address stands for
 * it in the key. */
tsr_status tsri_sm_select(tsri_smemo *memo, int m, const tsri_smkept *kept, int *out)
{
    uintptr_t address = (uintptr_t)kept->index;
    int key[] = {OP_SELECT, m, kept->count, (int)(address >> 31), (int)(address & 0x7fffffff)};
    if (knows(memo, key, 5, out))
        return TSR_OK;
    const double *from = tsri_sm_rows(memo, m);
    bool vector = memo->mats[m].rows == 1;
    int rows = vector ? 1 : kept->count, cols = vector ? kept->count : memo->mats[m].cols;
    double *at = new_entries(memo, rows, cols);
    TSRI_NEED(from && at);
    for (int i = 0; i < kept->count; i++)
        if (vector)
            at[i] = from[kept->index[i]];
        else
            memcpy(at + (int64_t)i * cols, from + (int64_t)kept->index[i] * cols,
                   (size_t)cols * sizeof *at);
    return add_result(memo, key, 5, rows, cols, at, out);
}

tsr_status tsri_sm_add(tsri_smemo *memo, int a, int b, int *out)
{
    int key[] = {OP_ADD, a < b ? a : b, a < b ? b : a};
    if (knows(memo, key, 3, out))
        return TSR_OK;
    const double *x = tsri_sm_rows(memo, a), *y = tsri_sm_rows(memo, b);
    int rows = memo->mats[a].rows, cols = memo->mats[a].cols;
    double *at = new_entries(memo, rows, cols);
    TSRI_NEED(x && y && at);
    for (int64_t i = 0; i < (int64_t)rows * cols; i++)
        at[i] = x[i] + y[i];
    return add_result(memo, key, 3, rows, cols, at, out);
}

tsr_status tsri_sm_message(tsri_smemo *memo, int node, int m, int *out)
{
    int key[] = {OP_MESSAGE, node, m};
    if (knows(memo, key, 3, out))
        return TSR_OK;
    const double *h = tsri_sm_rows(memo, node), *a = tsri_sm_rows(memo, m);
    int rows = memo->mats[m].rows, cols = memo->mats[m].cols;
    double *at = new_entries(memo, 1, cols);
    TSRI_NEED(h && a && at);
    memo->spent += (double)rows * cols;
    tsri_plus_min(h, a, rows, cols, at);
    return add_result(memo, key, 3, 1, cols, at, out);
}

tsr_status tsri_sm_join(tsri_smemo *memo, int node, int a, int b, int *out)
{
    bool swap = a > b;
    int key[] = {OP_JOIN, node, swap ? b : a, swap ? a : b};
    int m;
    if (knows(memo, key, 4, &m)) {
        *out = swap ? tsri_sm_flip(memo, m) : m;
        return TSR_OK;
    }
    int left = tsri_sm_flip(memo, key[2]), k = memo->mats[left].cols;
    const double *own = tsri_sm_rows(memo, node), *x = tsri_sm_rows(memo, left),
                 *y = tsri_sm_rows(memo, key[3]);
    int rows = memo->mats[left].rows, cols = memo->mats[key[3]].cols;
    double *at = new_entries(memo, rows, cols), *h = new_entries(memo, 1, k);
    TSRI_NEED(own && x && y && at && h);
    memo->spent += (double)rows * cols * k;
    for (int i = 0; i < rows; i++) {
        for (int s = 0; s < k; s++)
            h[s] = own[s] + x[(int64_t)i * k + s];
        tsri_plus_min(h, y, k, cols, at + (int64_t)i * cols);
    }
    TSRI_TRY(add_result(memo, key, 4, rows, cols, at, &m));
    *out = swap ? tsri_sm_flip(memo, m) : m;
    return TSR_OK;
}

static bool is_sum(const double *c, int rows, int cols)
{
    for (int i = 0; i < rows && rows > 1 && cols > 1; i++) {
        const double *row = c + (int64_t)i * cols;
        for (int j = 0; j < cols; j++)
            if (row[j] == INFINITY || row[j] + c[0] != row[0] + c[j])
                return false;
    }
    return true;
}

tsr_status tsri_sm_split(tsri_smemo *memo, int m, int *out_row, int *out_col)
{
    int key[] = {OP_SPLIT, m}, rows = memo->mats[m].rows, cols = memo->mats[m].cols;
    const tsri_smemo_entry *e = recall(memo, key, 2);
    if (e) {
        *out_row = e->result;
        *out_col = e->second;
        return TSR_OK;
    }
    const double *c = tsri_sm_rows(memo, m);
    TSRI_NEED(c);
    int row = NONE, col = NONE;
    if (is_sum(c, rows, cols)) {
        double *a = new_entries(memo, 1, rows), *b = new_entries(memo, 1, cols);
        TSRI_NEED(a && b);
        /* One row: all goes to the columns, so that no difference of INFINITY is needed. */
        for (int i = 0; i < rows && rows > 1; i++)
            a[i] = c[(int64_t)i * cols];
        for (int j = 0; j < cols && (rows == 1 || cols > 1); j++)
            b[j] = rows == 1 ? c[j] : c[j] - c[0];
        TSRI_TRY(add_matrix(memo, 1, rows, a, &row));
        TSRI_TRY(add_matrix(memo, 1, cols, b, &col));
    }
    *out_row = row;
    *out_col = col;
    return remember(memo, key, 2, row, col, NULL);
}

tsr_status tsri_sm_finite(tsri_smemo *memo, int m, double forbid, int *out)
{
    int key[] = {OP_FINITE, m};
    if (knows(memo, key, 2, out))
        return TSR_OK;
    const double *c = tsri_sm_rows(memo, m);
    int64_t count = (int64_t)memo->mats[m].rows * memo->mats[m].cols, i = 0;
    TSRI_NEED(c);
    while (i < count && c[i] < INFINITY)
        i++;
    *out = m;
    if (i < count) {
        double *at = new_entries(memo, memo->mats[m].rows, memo->mats[m].cols);
        TSRI_NEED(at);
        for (i = 0; i < count; i++)
            at[i] = c[i] < INFINITY ? c[i] : forbid;
        TSRI_TRY(add_matrix(memo, memo->mats[m].rows, memo->mats[m].cols, at, out));
    }
    TSRI_TRY(remember(memo, key, 2, *out, NONE, NULL));
    int flip[] = {OP_FINITE, tsri_sm_flip(memo, m)};
    return remember(memo, flip, 2, tsri_sm_flip(memo, *out), NONE, NULL);
}

/* A node at its domination. */
typedef struct dominance {
    const double *cost, *use; /* use may be NULL */
    const double **rows;      /* [nsides] of [k][cols] */
    const double **columns;   /* [nsides] of [cols][k] */
    int *cols;                /* [nsides] */
    int nsides;
    int *kept, count; /* strategies left */
    int *best;        /* [count][nsides] the partner that each likes most */
    double *beside;   /* [k] scratch */
} dominance;

static void drop_forbidden(dominance *d, int k)
{
    for (int s = 0; s < k; s++) {
        bool legal = d->cost[s] < INFINITY;
        for (int i = 0; i < d->nsides && legal; i++) {
            const double *row = d->rows[i] + (int64_t)s * d->cols[i];
            int arg = 0;
            for (int j = 1; j < d->cols[i]; j++)
                if (row[j] < row[arg])
                    arg = j;
            legal = row[arg] < INFINITY;
            d->best[d->count * d->nsides + i] = arg;
        }
        if (legal)
            d->kept[d->count++] = s;
    }
}

/* Costs of each strategy with the partners that s likes most: most strategies that could dominate s
 * fail here already. */
static void cost_beside(const dominance *d, int k, const int *best)
{
    memcpy(d->beside, d->cost, (size_t)k * sizeof(double));
    for (int i = 0; i < d->nsides; i++) {
        const double *column = d->columns[i] + (int64_t)best[i] * k;
        for (int t = 0; t < k; t++)
            d->beside[t] += column[t];
    }
}

static bool dominates(const dominance *d, int t, int s, double *work)
{
    bool lower = t < s;
    if (d->use && d->use[t] != d->use[s]) {
        lower = d->use[t] < d->use[s];
        if (!lower)
            return false;
    }
    double gain = d->cost[s] - d->cost[t], loss = 0.0;
    for (int i = 0; i < d->nsides; i++) {
        int64_t cols = d->cols[i];
        loss += tsri_plus_excess(d->rows[i] + t * cols, d->rows[i] + s * cols, d->cols[i]);
        *work -= d->cols[i];
    }
    return loss < gain || (loss == gain && lower);
}

static void drop_dominated(dominance *d, int k, double *work)
{
    int kept = 0;
    for (int a = 0; a < d->count; a++) {
        int s = d->kept[a];
        cost_beside(d, k, d->best + (int64_t)a * d->nsides);
        for (int b = 0; b < d->count && d->kept[a] >= 0; b++) {
            int t = d->kept[b];
            if (b != a && t >= 0 && d->beside[t] <= d->beside[s] && dominates(d, t, s, work))
                d->kept[a] = -1;
        }
    }
    *work -= (double)d->count * k * (d->nsides + 1) / 4.0;
    for (int a = 0; a < d->count; a++)
        if (d->kept[a] >= 0)
            d->kept[kept++] = d->kept[a];
    d->count = kept;
}

/* The scratch of one domination, carved out of memory that the memo keeps: it is called for every
 * node, many times. */
static tsr_status carve(tsri_smemo *memo, dominance *d, int k, int **out_key)
{
    size_t n = (size_t)d->nsides + 1, wide = (size_t)k;
    size_t bytes = 2 * n * sizeof(void *) + wide * sizeof(double) +
                   (n + wide * n + wide + n + 2) * sizeof(int);
    if (bytes > memo->scratch_bytes) {
        memo->scratch_bytes = 0;
        memo->scratch = tsri_pool_alloc(memo->pool, 2 * bytes);
        TSRI_NEED(memo->scratch);
        memo->scratch_bytes = 2 * bytes;
    }
    d->rows = memo->scratch;
    d->columns = d->rows + n;
    d->beside = (double *)(d->columns + n);
    d->cols = (int *)(d->beside + wide);
    d->best = d->cols + n;
    d->kept = d->best + wide * n;
    *out_key = d->kept + wide;
    return TSR_OK;
}

static tsr_status compute_dominated(tsri_smemo *memo, dominance *d, int node, const int *sides)
{
    int k = memo->mats[node].cols;
    d->cost = tsri_sm_rows(memo, node);
    TSRI_NEED(d->cost);
    for (int i = 0; i < d->nsides; i++) {
        d->rows[i] = tsri_sm_rows(memo, sides[i]);
        d->columns[i] = tsri_sm_rows(memo, tsri_sm_flip(memo, sides[i]));
        TSRI_NEED(d->rows[i] && d->columns[i]);
        d->cols[i] = memo->mats[sides[i]].cols;
    }
    drop_forbidden(d, k);
    if (d->count > 1 && memo->work > 0.0) {
        double more = 0.0;
        drop_dominated(d, k, &more);
        memo->work += more;
        memo->spent -= more;
    }
    return TSR_OK;
}

/* Equal sets of strategies share one array. */
static tsr_status keep(tsri_smemo *memo, int *key, int len, const dominance *d, const int **out)
{
    int *list = tsri_pool_alloc(memo->pool, ((size_t)d->count + 2) * sizeof(int));
    TSRI_NEED(list);
    list[0] = -OP_DOMINATE;
    memcpy(list + 1, d->kept, (size_t)d->count * sizeof(int));
    const tsri_smemo_entry *e = recall(memo, list, d->count + 1);
    *out = e ? e->index : list + 1;
    if (!e)
        TSRI_TRY(remember(memo, list, d->count + 1, NONE, NONE, list + 1));
    return remember(memo, key, len, d->count, NONE, *out);
}

tsr_status tsri_sm_dominate(tsri_smemo *memo, int node, int use, int *sides, int nsides,
                            tsri_smkept *out)
{
    dominance d = {.nsides = nsides};
    int *key;
    TSRI_TRY(carve(memo, &d, memo->mats[node].cols, &key));
    for (int i = 1; i < nsides; i++)
        for (int j = i; j > 0 && sides[j] < sides[j - 1]; j--) {
            int x = sides[j];
            sides[j] = sides[j - 1];
            sides[j - 1] = x;
        }
    key[0] = OP_DOMINATE;
    key[1] = node;
    key[2] = use;
    for (int i = 0; i < nsides; i++)
        key[3 + i] = sides[i];
    const tsri_smemo_entry *e = recall(memo, key, nsides + 3);
    out->of = memo->mats[node].cols;
    if (e) {
        out->count = e->result;
        out->index = e->index;
        return TSR_OK;
    }
    if (use >= 0)
        d.use = tsri_sm_rows(memo, use);
    TSRI_NEED(use < 0 || d.use);
    TSRI_TRY(compute_dominated(memo, &d, node, sides));
    TSRI_TRY(keep(memo, key, nsides + 3, &d, &out->index));
    out->count = d.count;
    return TSR_OK;
}
