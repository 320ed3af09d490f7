/* SPDX-License-Identifier: Apache-2.0 */
/* bench_collective's loop over MPI: "SIZE mpi MICROSECONDS" lines. Built by collective_mpi.py,
 * where there is an mpicc. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 20000 };
static double times[MOST];

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void all_reduce(float *data, size_t bytes)
{
    MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof *data), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double seconds = argc > 1 ? atof(argv[1]) : 0.2;
    for (int s = 2; s < argc; s++) {
        size_t bytes = strtoull(argv[s], NULL, 10);
        float *data = malloc(bytes + 1);
        int calls = 20;
        for (int round = 0; round < 2; round++) {
            double begin = MPI_Wtime();
            for (int i = 0; i < calls; i++) {
                memset(data, i % 2, bytes);
                MPI_Barrier(MPI_COMM_WORLD);
                double t = MPI_Wtime();
                all_reduce(data, bytes);
                times[i] = MPI_Wtime() - t;
            }
            if (round == 1)
                break;
            double each = (MPI_Wtime() - begin) / calls;
            calls = each * MOST < seconds ? MOST : (int)(seconds / each);
            calls = calls < 20 ? 20 : calls;
            MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        qsort(times, (size_t)calls, sizeof *times, by_value);
        if (rank == 0)
            printf("%zu mpi %.3f\n", bytes, 1e6 * times[calls / 2]);
        free(data);
    }
    MPI_Finalize();
    return 0;
}
