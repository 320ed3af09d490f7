/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/files.h"
#include "tests/unit/heap.h"
#include "tests/sample.h"

#include <inttypes.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "src/core/new_file.h"
#include "src/core/rng.h"
#include "src/core/live.h"
#include "src/data/dataset.h"
#include "src/data/sets/synthetic.h"

enum {
    RECORD = 3073,
};

static struct tsr_world world = {.nranks = 1, .threads = 1};

/* The error's status and every one of the words in its text. */
#define assert_fails(expr, status, ...)                                   \
    do {                                                                  \
        assert_int_equal((expr), (status));                               \
        const char *const words_[] = {__VA_ARGS__};                       \
        for (size_t w_ = 0; w_ < sizeof words_ / sizeof *words_; w_++)    \
            if (!strstr(tsr_last_error(), words_[w_]))                    \
                fail_msg("no '%s' in: %s", words_[w_], tsr_last_error()); \
    } while (0)

/* --- CIFAR-10 --------------------------------------------------------------------------------- */

static uint8_t cifar_byte(int file, int record, int byte)
{
    return byte ? (uint8_t)(file * 31 + record * 7 + byte * 13 + byte / 256)
                : (uint8_t)((file + record) % 10);
}

static void write_cifar(const char *name, int file, int records, int extra)
{
    size_t bytes = (size_t)(records * RECORD + extra);
    uint8_t *data = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        data[i] = cifar_byte(file, (int)(i / RECORD), (int)(i % RECORD));
    write_file(name, data, bytes);
    free(data);
}

static void write_train(void)
{
    const int records[] = {3, 1, 0, 200, 2}; /* 200: more than is read at a time */
    char name[32];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        write_cifar(name, i + 1, records[i], 0);
    }
}

static void cifar_is_read_whole(void **state)
{
    (void)state;
    write_train();
    tsr_dataset *ds;
    assert_int_equal(tsr_cifar10_open(&world, test_dir, true, &ds), TSR_OK);
    assert_int_equal(tsr_dataset_count(ds), 206);
    assert_int_equal(tsr_dataset_channels(ds), 3);
    assert_int_equal(tsr_dataset_height(ds), 32);
    assert_int_equal(tsr_dataset_width(ds), 32);
    assert_int_equal(tsr_dataset_classes(ds), 10);
    const int file[] = {1, 1, 2, 4, 4, 5}, record[] = {0, 2, 0, 0, 199, 1},
              at[] = {0, 2, 3, 4, 203, 205};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tsr_dataset_labels(ds)[at[i]], cifar_byte(file[i], record[i], 0));
        for (int b = 1; b < RECORD; b++)
            assert_int_equal(tsr_dataset_images(ds)[at[i] * 3072 + b - 1],
                             cifar_byte(file[i], record[i], b));
    }
    tsr_dataset_destroy(ds);
}

static void cifar_is_found_in_the_archives_folder(void **state)
{
    (void)state;
    assert_int_equal(mkdir(test_path("cifar-10-batches-bin"), 0777), 0);
    write_cifar("cifar-10-batches-bin/test_batch.bin", 6, 2, 0);
    tsr_dataset *ds;
    assert_int_equal(tsr_cifar10_open(&world, test_dir, false, &ds), TSR_OK);
    assert_int_equal(tsr_dataset_count(ds), 2);
    tsr_dataset_destroy(ds);
    write_cifar("test_batch.bin", 6, 3, 0); /* of the folder itself goes first */
    assert_int_equal(tsr_cifar10_open(&world, test_dir, false, &ds), TSR_OK);
    assert_int_equal(tsr_dataset_count(ds), 3);
    tsr_dataset_destroy(ds);
}

static void cifar_errors_name_file_and_byte(void **state)
{
    (void)state;
    tsr_dataset *ds = NULL;
    assert_fails(tsr_cifar10_open(&world, test_dir, false, &ds), TSR_ERR_IO, "test_batch.bin",
                 "No such file");
    write_train();
    assert_int_equal(unlink(test_path("data_batch_3.bin")), 0);
    assert_fails(tsr_cifar10_open(&world, test_dir, true, &ds), TSR_ERR_IO, "data_batch_3.bin");
    write_cifar("data_batch_3.bin", 3, 2, 3072);
    assert_fails(tsr_cifar10_open(&world, test_dir, true, &ds), TSR_ERR_FORMAT, "data_batch_3.bin",
                 "byte 6146:", "3072 bytes");
    write_cifar("test_batch.bin", 6, 0, 0);
    assert_fails(tsr_cifar10_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, "test_batch.bin",
                 "no records");
    write_cifar("test_batch.bin", 6, 0, 1);
    assert_fails(tsr_cifar10_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT,
                 "byte 0:", "1 bytes");
    static uint8_t bad[3 * RECORD];
    bad[RECORD] = 9;
    bad[2 * RECORD] = 10;
    write_file("test_batch.bin", bad, sizeof bad);
    assert_fails(tsr_cifar10_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, "test_batch.bin",
                 "byte 6146:", "label 10");
    assert_int_equal(unlink(test_path("test_batch.bin")), 0);
    assert_int_equal(mkdir(test_path("test_batch.bin"), 0777), 0);
    assert_fails(tsr_cifar10_open(&world, test_dir, false, &ds), TSR_ERR_IO, "not a regular file");
    assert_fails(tsr_cifar10_open(&world, NULL, false, &ds), TSR_ERR_INVALID, "NULL");
    assert_null(ds);
    assert_null(world.owned);
}

/* --- MNIST ------------------------------------------------------------------------------------ */

static size_t make_idx(uint8_t *out, uint32_t magic, int naxes, const uint32_t *axes, size_t bytes)
{
    for (int i = 0; i <= naxes; i++)
        for (int b = 0; b < 4; b++)
            out[4 * i + b] = (uint8_t)((i ? axes[i - 1] : magic) >> (24 - 8 * b));
    size_t at = 4 + 4 * (size_t)naxes;
    for (size_t i = 0; i < bytes; i++)
        out[at + i] = naxes == 1 ? (uint8_t)(i % 10) : (uint8_t)(i * 37 + i / 256);
    return at + bytes;
}

static void write_gz(const char *name, const void *data, size_t bytes)
{
    gzFile gz = gzopen(test_path(name), "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, data, (unsigned)bytes), bytes);
    assert_int_equal(gzclose(gz), Z_OK);
}

static uint8_t idx_images[4096], idx_labels[4096];
static size_t images_bytes, labels_bytes;

static void make_mnist(void)
{
    images_bytes = make_idx(idx_images, 0x803, 3, (uint32_t[]){12, 5, 7}, 12 * 5 * 7);
    labels_bytes = make_idx(idx_labels, 0x801, 1, (uint32_t[]){12}, 12);
}

#define IMAGES "t10k-images-idx3-ubyte"
#define LABELS "t10k-labels-idx1-ubyte"

static void check_mnist(bool train)
{
    tsr_dataset *ds;
    assert_int_equal(tsr_mnist_open(&world, test_dir, train, &ds), TSR_OK);
    assert_int_equal(tsr_dataset_count(ds), 12);
    assert_int_equal(tsr_dataset_channels(ds), 1);
    assert_int_equal(tsr_dataset_height(ds), 5);
    assert_int_equal(tsr_dataset_width(ds), 7);
    assert_memory_equal(tsr_dataset_images(ds), idx_images + 16, 12 * 5 * 7);
    assert_memory_equal(tsr_dataset_labels(ds), idx_labels + 8, 12);
    tsr_dataset_destroy(ds);
}

static void mnist_is_read_plain_and_gzipped(void **state)
{
    (void)state;
    make_mnist();
    write_file(IMAGES, idx_images, images_bytes);
    write_gz(LABELS ".gz", idx_labels, labels_bytes); /* one of each */
    check_mnist(false);
    write_gz("train-images-idx3-ubyte.gz", idx_images, images_bytes);
    write_file("train-labels-idx1-ubyte", idx_labels, labels_bytes);
    write_gz("train-labels-idx1-ubyte.gz", "junk", 4); /* the plain one goes first */
    check_mnist(true);
}

/* More than is read at once: the file's length is not believed before its bytes are there. */
static void large_mnist_is_read_whole(void **state)
{
    (void)state;
    if (test_small_inputs())
        skip();
    enum { IMAGE = 200 * 200, NIMAGES = 500, BYTES = NIMAGES * IMAGE };
    uint8_t *images = malloc(BYTES + 17), labels[NIMAGES + 8];
    tsr_dataset *ds;
    assert_non_null(images);
    size_t bytes = make_idx(images, 0x803, 3, (uint32_t[]){NIMAGES, 200, 200}, BYTES);
    write_file(IMAGES, images, bytes);
    write_file(LABELS, labels, make_idx(labels, 0x801, 1, (uint32_t[]){NIMAGES}, NIMAGES));
    assert_int_equal(tsr_mnist_open(&world, test_dir, false, &ds), TSR_OK);
    assert_int_equal(tsr_dataset_count(ds), NIMAGES);
    assert_true(!memcmp(tsr_dataset_images(ds), images + 16, BYTES));
    tsr_dataset_destroy(ds);
    write_file(IMAGES, images, bytes - 1);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT,
                 "ends at byte 20000015; its header promises 20000016 bytes");
    images[bytes] = 0;
    write_file(IMAGES, images, bytes + 1);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT,
                 "more data behind its end at byte 20000016");
    free(images);
}

static void mnist_errors_name_file_and_byte(void **state)
{
    (void)state;
    tsr_dataset *ds = NULL;
    make_mnist();
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_IO, IMAGES, ".gz");
    write_file(IMAGES, idx_images, images_bytes);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_IO, LABELS);
    assert_int_equal(mkfifo(test_path(LABELS), 0600), 0); /* nobody will ever write into it */
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_IO, LABELS,
                 "not a regular file");
    unlink(test_path(LABELS));
    write_file(LABELS, idx_labels, labels_bytes);
    check_mnist(false);

    write_file(IMAGES, idx_labels, labels_bytes);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, IMAGES,
                 "byte 0:", "0x00000801", "0x00000803");
    for (size_t n = 0; n < 16; n++) {
        char want[64];
        snprintf(want, sizeof want, "ends at byte %zu, within its header of 16 bytes", n);
        write_file(IMAGES, idx_images, n);
        assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, IMAGES, want);
    }
    write_file(IMAGES, idx_labels, 4); /* enough to see that it is another file */
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, "byte 0:");
    write_file(IMAGES, idx_images, images_bytes - 1);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, IMAGES, "byte 435",
                 "436");
    write_file(IMAGES, idx_images, images_bytes + 1);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, IMAGES, "byte 436",
                 "more data");
    make_idx(idx_images, 0x803, 3, (uint32_t[]){12, 0, 7}, 0);
    write_file(IMAGES, idx_images, 16);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, "byte 8:", "axis 1");
    make_idx(idx_images, 0x803, 3, (uint32_t[]){0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}, 0);
    write_file(IMAGES, idx_images, 16);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, "too large");
    make_idx(idx_images, 0x803, 3, (uint32_t[]){0x7FFFFFFF, 0x7FFFFFFF, 1}, 100);
    write_file(IMAGES, idx_images, 116); /* a claim of 2^62 bytes takes no memory for them */
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, "byte 116");

    make_mnist();
    write_file(IMAGES, idx_images, images_bytes);
    labels_bytes = make_idx(idx_labels, 0x801, 1, (uint32_t[]){11}, 11);
    write_file(LABELS, idx_labels, labels_bytes);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, IMAGES, LABELS,
                 "12 images", "11 labels");
    make_mnist();
    idx_labels[8 + 5] = 10;
    write_file(LABELS, idx_labels, labels_bytes);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, LABELS,
                 "byte 13:", "label 10");
    assert_null(ds);
    assert_null(world.owned);
}

static void gzip_cut_anywhere_or_damaged_is_an_error(void **state)
{
    (void)state;
    make_mnist();
    write_file(LABELS, idx_labels, labels_bytes);
    write_gz(IMAGES ".gz", idx_images, images_bytes);
    size_t bytes;
    unsigned char *gz = read_file(IMAGES ".gz", &bytes);
    tsr_dataset *ds = NULL;
    for (size_t n = 0; n < bytes; n++) {
        write_file(IMAGES ".gz", gz, n);
        assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, IMAGES ".gz",
                     "byte");
    }
    gz[bytes - 6] ^= 1; /* of the checksum */
    write_file(IMAGES ".gz", gz, bytes);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT, IMAGES ".gz");
    free(gz);
}

/* Appends a piece of gzip's format, which may be a row of files. */
static void append_file(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(test_path(name), "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* 2 MB that unpack to the 2 GiB that their header promises, and 48 MiB that are fine. */
static void gzip_bombs_take_no_memory(void **state)
{
    (void)state;
    if (test_small_inputs())
        skip();
    enum { PIECE = 16 << 20 };
    tsr_dataset *ds = NULL;
    struct rusage before, after;
    size_t bytes;
    char *zeros = calloc(1, PIECE);
    assert_non_null(zeros);
    write_gz("zeros.gz", zeros, PIECE);
    free(zeros);
    unsigned char *piece = read_file("zeros.gz", &bytes);
    make_mnist();
    make_idx(idx_images, 0x803, 3, (uint32_t[]){2048, 1024, 1024}, 0);
    write_gz(IMAGES ".gz", idx_images, 16);
    write_file(LABELS, idx_labels, labels_bytes);
    for (int i = 0; i < 128; i++)
        append_file(IMAGES ".gz", piece, bytes);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_fails(tsr_mnist_open(&world, test_dir, false, &ds), TSR_ERR_FORMAT,
                 IMAGES ".gz: byte 4: its header promises 2147483648 bytes", "64 times", "64 MiB");
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10); /* KiB */

    make_idx(idx_images, 0x803, 3, (uint32_t[]){12, 2048, 2048}, 0);
    write_gz(IMAGES ".gz", idx_images, 16);
    for (int i = 0; i < 3; i++)
        append_file(IMAGES ".gz", piece, bytes);
    assert_int_equal(tsr_mnist_open(&world, test_dir, false, &ds), TSR_OK);
    tsr_dataset_destroy(ds);
    free(piece);
}

static void failing_allocations_are_errors(void **state)
{
    (void)state;
    make_mnist();
    write_file(IMAGES, idx_images, images_bytes);
    write_file(LABELS, idx_labels, labels_bytes);
    write_cifar("test_batch.bin", 6, 2, 0);
    for (int kind = 0; kind < 2; kind++) {
        tsr_status status = TSR_ERR_NO_MEMORY;
        tsr_dataset *ds = NULL;
        int n = 0;
        while (status != TSR_OK) {
            assert_int_equal(status, TSR_ERR_NO_MEMORY);
            world.mem.fail_countdown = ++n;
            status = kind ? tsr_mnist_open(&world, test_dir, false, &ds)
                          : tsr_cifar10_open(&world, test_dir, false, &ds);
        }
        world.mem.fail_countdown = 0;
        assert_true(n > 3);
        tsr_dataset_destroy(ds);
    }
}

static void open_two_and_end(void)
{
    write_cifar("test_batch.bin", 6, 2, 0);
    tsr_dataset *a, *b;
    assert_int_equal(tsr_cifar10_open(&world, test_dir, false, &a), TSR_OK);
    assert_int_equal(tsr_cifar10_open(&world, test_dir, false, &b), TSR_OK);
    tsr_dataset_destroy(a);
    tsri_world_destroy_owned(&world);
    assert_null(world.owned);
}

static void a_world_takes_its_data_sets_along(void **state)
{
    (void)state;
    KEEPS_NOTHING(open_two_and_end());
}

/* --- the synthetic set ------------------------------------------------------------------------ */

static void synthetic_set_is_reproducible(void **state)
{
    (void)state;
    tsr_dataset *train, *test;
    assert_int_equal(tsr_synthetic_write_cifar10(test_dir, 20, 7), TSR_OK);
    size_t n1, n2, n3;
    unsigned char *one = read_file("data_batch_2.bin", &n1);
    assert_int_equal(n1, 20 * RECORD);
    assert_int_equal(tsr_synthetic_write_cifar10(test_dir, 20, 7), TSR_OK);
    unsigned char *two = read_file("data_batch_2.bin", &n2);
    assert_memory_equal(one, two, n1);
    assert_int_equal(tsr_synthetic_write_cifar10(test_dir, 20, 8), TSR_OK);
    unsigned char *three = read_file("data_batch_2.bin", &n3);
    assert_memory_not_equal(one, three, n1);
    free(one);
    free(two);
    free(three);
    assert_int_equal(tsr_cifar10_open(&world, test_dir, true, &train), TSR_OK);
    assert_int_equal(tsr_cifar10_open(&world, test_dir, false, &test), TSR_OK);
    assert_int_equal(tsr_dataset_count(train), 100);
    assert_int_equal(tsr_dataset_count(test), 20);
    int of_class[10] = {0};
    for (int i = 0; i < 100; i++)
        of_class[tsr_dataset_labels(train)[i]]++;
    for (int i = 0; i < 10; i++)
        assert_int_equal(of_class[i], 10);
    assert_memory_not_equal(tsr_dataset_images(train), tsr_dataset_images(test), 3072);
    tsr_dataset_destroy(train);
    tsr_dataset_destroy(test);
}

/* A set has the same bytes in every release. */
static void synthetic_sets_stay_as_they_are(void **state)
{
    (void)state;
    uint64_t files = TSRI_HASH_INIT;
    assert_int_equal(tsr_synthetic_write_cifar10(test_dir, 20, 7), TSR_OK);
    for (int i = 1; i <= 6; i++) {
        char name[32];
        size_t bytes;
        snprintf(name, sizeof name, i < 6 ? "data_batch_%d.bin" : "test_batch.bin", i);
        unsigned char *data = read_file(name, &bytes);
        assert_int_equal(bytes, 20 * RECORD);
        files = tsri_hash(files, data, bytes);
        free(data);
    }
    assert_true(files == 0x70536c879ebf77f7);
    tsr_dataset *ds;
    assert_int_equal(tsr_synthetic_open(&world, 3, 5, 7, 4, 30, 11, &ds), TSR_OK);
    uint64_t set = tsri_hash(TSRI_HASH_INIT, tsr_dataset_images(ds), 30 * 105);
    assert_true(tsri_hash(set, tsr_dataset_labels(ds), 30) == 0xaf84e018506ccedb);
    tsr_dataset_destroy(ds);
}

/* Share of the test images that are nearest to their own class's mean in `features`. */
static double nearest_mean(const tsr_dataset *train, const tsr_dataset *test, int nfeatures,
                           void (*features)(const uint8_t *image, double *out))
{
    double mean[10][64] = {{0}}, f[64];
    int n[10] = {0}, right = 0;
    for (int64_t i = 0; i < train->count; i++) {
        features(train->images + i * 3072, f);
        n[train->labels[i]]++;
        for (int k = 0; k < nfeatures; k++)
            mean[train->labels[i]][k] += f[k];
    }
    for (int64_t i = 0; i < test->count; i++) {
        double best = 1e300;
        int guess = -1;
        features(test->images + i * 3072, f);
        for (int c = 0; c < 10; c++) {
            double d = 0;
            for (int k = 0; k < nfeatures; k++)
                d += (f[k] - mean[c][k] / n[c]) * (f[k] - mean[c][k] / n[c]);
            if (d < best) {
                best = d;
                guess = c;
            }
        }
        right += guess == test->labels[i];
    }
    return (double)right / (double)test->count;
}

static void mean_colour(const uint8_t *image, double *out)
{
    for (int c = 0; c < 3; c++) {
        out[c] = 0;
        for (int i = 0; i < 1024; i++)
            out[c] += image[c * 1024 + i] / 1024.0;
    }
}

/* How rough the image is in four directions, relative to all: sees stripes, and little else. */
static void roughness(const uint8_t *image, double *out)
{
    const int step[4][2] = {{0, 2}, {2, 0}, {2, 2}, {2, -2}};
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        out[k] = 0;
        for (int c = 0; c < 3; c++)
            for (int y = 2; y < 30; y++)
                for (int x = 2; x < 30; x++)
                    out[k] += abs(image[(c * 32 + y) * 32 + x] -
                                  image[(c * 32 + y + step[k][0]) * 32 + x + step[k][1]]);
        sum += out[k];
    }
    for (int k = 0; k < 4; k++)
        out[k] /= sum;
}

static void synthetic_classes_differ_in_form_not_colour(void **state)
{
    (void)state;
    tsr_dataset *train, *test;
    assert_int_equal(tsr_synthetic_write_cifar10(test_dir, 400, 1), TSR_OK);
    assert_int_equal(tsr_cifar10_open(&world, test_dir, true, &train), TSR_OK);
    assert_int_equal(tsr_cifar10_open(&world, test_dir, false, &test), TSR_OK);
    double by_colour = nearest_mean(train, test, 3, mean_colour);
    double by_form = nearest_mean(train, test, 4, roughness);
    printf("# nearest mean: colour %.3f, roughness %.3f\n", by_colour, by_form);
    assert_true(by_colour < 0.2);
    assert_true(by_form > 0.25);
    tsr_dataset_destroy(train);
    tsr_dataset_destroy(test);
}

static void synthetic_set_spares_a_real_one(void **state)
{
    (void)state;
    write_cifar("test_batch.bin", 6, 1, 0);
    assert_fails(tsr_synthetic_write_cifar10(test_dir, 10, 1), TSR_ERR_STATE, test_dir);
    write_file("batches.meta.txt", "airplane\n", 9);
    assert_fails(tsr_synthetic_write_cifar10(test_dir, 10, 1), TSR_ERR_STATE, test_dir);
    assert_fails(tsr_synthetic_write_cifar10(test_dir, 0, 1), TSR_ERR_INVALID, "0 records");
    assert_fails(tsr_synthetic_write_cifar10(test_path("test_batch.bin"), 1, 1), TSR_ERR_IO,
                 "batches.meta.txt");
}

/* A folder's name is told to be too long before anything is made. */
static void synthetic_set_needs_room_for_names(void **state)
{
    (void)state;
    const int most = PATH_MAX - 1 - (int)TSRI_NEW_FILE_NAME;
    char dir[PATH_MAX], found[64];
    memset(dir, '/', sizeof dir);
    memcpy(dir, test_dir, strlen(test_dir));
    dir[most + 1] = 0;
    assert_fails(tsr_synthetic_write_cifar10(dir, 1, 1), TSR_ERR_INVALID, "name too long");
    assert_int_equal(access(test_path("data_batch_1.bin"), F_OK), -1);
    dir[most] = 0;
    assert_int_equal(tsr_synthetic_write_cifar10(dir, 1, 1), TSR_OK);
    for (int i = 1; i <= 5; i++) {
        snprintf(found, sizeof found, "data_batch_%d.bin", i);
        assert_int_equal(access(test_path(found), F_OK), 0);
    }
}

/* --- real files, where there are any ---------------------------------------------------------- */

static void real_files_are_read(void **state)
{
    (void)state;
    const char *root = getenv("TESSERA_TEST_DATA");
    if (!root || access(root, F_OK)) {
        print_message("skipped: TESSERA_TEST_DATA names no folder\n");
        skip();
    }
    char dir[PATH_MAX];
    tsr_dataset *ds;
    for (int train = 0; train < (test_small_inputs() ? 1 : 2); train++) {
        assert_int_equal(tsr_cifar10_open(&world, root, train, &ds), TSR_OK);
        assert_true(tsr_dataset_count(ds) >= 100);
        tsr_dataset_destroy(ds);
        /* MNIST may lie beside CIFAR-10's folder; its first labels are well known. */
        snprintf(dir, sizeof dir, "%s/../mnist", root);
        if (access(dir, F_OK))
            continue;
        assert_int_equal(tsr_mnist_open(&world, dir, train, &ds), TSR_OK);
        assert_int_equal(tsr_dataset_count(ds), train ? 60000 : 10000);
        assert_memory_equal(tsr_dataset_labels(ds), train ? "\5\0\4\1" : "\7\2\1\0", 4);
        tsr_dataset_destroy(ds);
    }
}

/* The nearest class mean tells nearly all images: there is something to learn. */
static void drawn_set_can_be_learnt(void **state)
{
    (void)state;
    enum { PIXELS = 2 * 4 * 5, CLASSES = 3, COUNT = 300 };
    tsr_dataset *ds, *same, *other;
    assert_int_equal(tsr_synthetic_open(&world, 2, 4, 5, CLASSES, COUNT, 7, &ds), TSR_OK);
    assert_int_equal(tsr_synthetic_open(&world, 2, 4, 5, CLASSES, COUNT, 7, &same), TSR_OK);
    assert_int_equal(tsr_synthetic_open(&world, 2, 4, 5, CLASSES, COUNT, 8, &other), TSR_OK);
    const uint8_t *x = tsr_dataset_images(ds), *y = tsr_dataset_labels(ds);
    assert_memory_equal(x, tsr_dataset_images(same), COUNT * PIXELS);
    assert_memory_equal(y, tsr_dataset_labels(same), COUNT);
    assert_memory_not_equal(x, tsr_dataset_images(other), COUNT * PIXELS);
    double mean[CLASSES][PIXELS] = {{0}}, n[CLASSES] = {0};
    for (int i = 0; i < COUNT; i++) {
        assert_true(y[i] < CLASSES);
        n[y[i]]++;
        for (int j = 0; j < PIXELS; j++)
            mean[y[i]][j] += x[i * PIXELS + j];
    }
    int right = 0;
    for (int i = 0; i < COUNT; i++) {
        double best = 1e300;
        int nearest = 0;
        for (int c = 0; c < CLASSES; c++) {
            double d = 0;
            for (int j = 0; j < PIXELS; j++)
                d += (x[i * PIXELS + j] - mean[c][j] / n[c]) *
                     (x[i * PIXELS + j] - mean[c][j] / n[c]);
            if (d < best) {
                best = d;
                nearest = c;
            }
        }
        right += nearest == y[i];
    }
    assert_true(n[0] > 70 && n[1] > 70 && n[2] > 70);
    assert_true(right > COUNT * 9 / 10);
    for (int c = 0; c < CLASSES; c++)
        for (int j = 0; j < PIXELS; j++) { /* every pixel has noise of its own */
            int low = 255, high = 0;
            for (int i = 0; i < COUNT; i++)
                if (y[i] == c) {
                    low = x[i * PIXELS + j] < low ? x[i * PIXELS + j] : low;
                    high = x[i * PIXELS + j] > high ? x[i * PIXELS + j] : high;
                }
            assert_true(high - low > 64);
        }
    tsr_dataset_destroy(ds);
    tsr_dataset_destroy(same);
    tsr_dataset_destroy(other);
    assert_fails(tsr_synthetic_open(&world, 4, 1, 1, 2, 1, 0, &ds), TSR_ERR_INVALID,
                 "1 images of 4 x 1 x 1, 2 classes; legal are 1 to 3 channels");
    assert_fails(tsr_synthetic_open(&world, 1, INT64_MAX, INT64_MAX, 2, 1, 0, &ds), TSR_ERR_INVALID,
                 "less than 2^46 pixels");
    for (int64_t k = 1;; k++) {
        world.mem.fail_countdown = k;
        tsr_status status = tsr_synthetic_open(&world, 1, 2, 2, 2, 4, 0, &ds);
        world.mem.fail_countdown = 0;
        if (status == TSR_OK)
            break;
        assert_int_equal(status, TSR_ERR_NO_MEMORY);
        assert_true(k < 5);
    }
    tsr_dataset_destroy(ds);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_test_dir, remove_test_dir)

int main(void)
{
    if (tsri_live_add(NULL, &world, TSRI_LIVE_WORLD) != TSR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        TEST(cifar_is_read_whole),
        TEST(cifar_is_found_in_the_archives_folder),
        TEST(cifar_errors_name_file_and_byte),
        TEST(mnist_is_read_plain_and_gzipped),
        TEST(large_mnist_is_read_whole),
        TEST(mnist_errors_name_file_and_byte),
        TEST(gzip_cut_anywhere_or_damaged_is_an_error),
        TEST(gzip_bombs_take_no_memory),
        TEST(failing_allocations_are_errors),
        TEST(a_world_takes_its_data_sets_along),
        TEST(synthetic_set_is_reproducible),
        TEST(synthetic_sets_stay_as_they_are),
        TEST(synthetic_classes_differ_in_form_not_colour),
        TEST(synthetic_set_spares_a_real_one),
        TEST(synthetic_set_needs_room_for_names),
        TEST(drawn_set_can_be_learnt),
        TEST(real_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
