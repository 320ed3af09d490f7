/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers and their gradients by the fast kernels, of every instruction set that this
 * machine has and of teams that share samples, units of the state and both, against the reference.
 */
#include "kernels/recurrent.h"
#include "tests/kernels/fast/fast_case.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 6 };

/* Makes operands or results: `like` says the sizes of each, as text: "x" [t, n, g h], "w" [g h, h],
 * "b" [g h], "s" [n, h], "y" [t, n, h], "g" [t, n, 4 h]. */
static int make(tsr_dtype dtype, const char *like, const int64_t *n, int gates, fc_tensor *t,
                fc_tensor **to)
{
    int count = 0;
    for (; like[count]; count++) {
        const int64_t wide = gates * n[2];
        fc_tensor *at = &t[count];
        switch (like[count]) {
        case 'w':
            *at = fc_rows(dtype, 2, wide, n[2], 0, 0);
            break;
        case 'b':
            *at = fc_rows(dtype, 1, wide, 0, 0, 0);
            break;
        case 's':
            *at = fc_rows(dtype, 2, n[1], n[2], 0, 0);
            break;
        default:
            *at = fc_rows(dtype, 3, n[0], n[1],
                          like[count] == 'x'   ? wide
                          : like[count] == 'g' ? 4 * n[2]
                                               : n[2],
                          0);
        }
        fc_draw(at);
        to[count] = at;
    }
    return count;
}

static void like_reference(tsr_dtype dtype, tsri_op_kind op, const tsri_attrs *at,
                           const char *operands, const char *results, const int64_t *n)
{
    const tsri_cell cell = (tsri_cell)at->recurrent.cell;
    const int gates = tsri_cell_gates(cell);
    fc_tensor t[3 * MOST], *in[MOST], *got[MOST], *want[MOST];
    const int nin = make(dtype, operands, n, gates, t, in);
    const int nout = make(dtype, results, n, gates, t + MOST, got);
    make(dtype, results, n, gates, t + 2 * (ptrdiff_t)MOST, want);
    for (int i = 0; i < nin; i++) /* weights that keep the state about where it is */
        for (int64_t k = 0; operands[i] == 'w' && k < in[i]->n; k++)
            if (dtype == TSR_F64)
                ((double *)in[i]->data)[k] /= sqrt((double)n[2]);
            else
                ((float *)in[i]->data)[k] /= sqrtf((float)n[2]);
    assert_true(fc_run(&tsri_kernels_cpu_fast, op, at, 0, nin, in, nout, got));
    assert_true(fc_run(&tsri_kernels_cpu_ref, op, at, 0, nin, in, nout, want));
    for (int o = 0; o < nout; o++) {
        double top = 0;
        for (int64_t i = 0; i < want[o]->n; i++)
            top = fmax(top, fabs(fc_at(want[o], i)));
        for (int64_t i = 0; i < want[o]->n; i++) {
            const double g = fc_at(got[o], i), w = fc_at(want[o], i);
            if (!(fabs(g - w) <= (dtype == TSR_F64 ? 4e-14 : 4e-6) * top))
                fail_msg(
                    "%s: cell %d, %ldx%ldx%ld, %d threads: result %d, element %ld is %.9g, not "
                    "%.9g",
                    tsri_op_name(op), cell, (long)n[0], (long)n[1], (long)n[2],
                    omp_get_max_threads(), o, (long)i, g, w);
        }
    }
    fc_free(nin, in);
    fc_free(nout, got);
    fc_free(nout, want);
}

/* Samples fewer and more than tiles have rows, states of odd sizes, and ones that are worth a
 * team's meeting once a step. */
static void test_cells(void **state)
{
    (void)state;
    static const char *const isas[] = {"base", "avx2", "avx512"};
    static const int64_t shapes[][3] = {{1, 1, 1},   {6, 1, 37},  {5, 3, 16},  {4, 7, 200},
                                        {3, 18, 65}, {2, 35, 90}, {3, 1, 400}, {3, 17, 130}};
    static const struct {
        const char *in, *out, *dx_in, *dx_out;
    } cells[TSRI_CELL_COUNT_] = {
        [TSRI_CELL_TANH] = {"xws", "y", "wyy", "xs"},
        [TSRI_CELL_RELU] = {"xws", "y", "wyy", "xs"},
        [TSRI_CELL_LSTM] = {"xwss", "yyg", "wsygyy", "xss"},
        [TSRI_CELL_GRU] = {"xwbs", "yg", "wsygy", "xsx"},
    };
    const int before = omp_get_max_threads();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int cell = 0; cell < TSRI_CELL_COUNT_; cell++)
            for (int k = 0; k < 24; k++) {
                const tsr_dtype dtype = k < 12 ? TSR_F32 : TSR_F64;
                tsri_attrs at = {.recurrent = {.cell = cell, .reverse = k & 1}};
                setenv("TESSERA_CPU_ISA", isas[k % 3], 1);
                omp_set_num_threads(1 + k % 12 / 3);
                at.recurrent.has_bias = cell == TSRI_CELL_GRU;
                like_reference(dtype, TSRI_OP_RECURRENT, &at, cells[cell].in, cells[cell].out,
                               shapes[i]);
                at.recurrent.has_bias = 0;
                at.recurrent.has_dc = cell == TSRI_CELL_LSTM;
                like_reference(dtype, TSRI_OP_RECURRENT_DX, &at, cells[cell].dx_in,
                               cells[cell].dx_out, shapes[i]);
            }
    omp_set_num_threads(before);
    unsetenv("TESSERA_CPU_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cells)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
