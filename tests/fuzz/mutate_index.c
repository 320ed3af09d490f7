/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How indices of checkpoints are changed: mostly by their numbers, pieces and lines, so that what
 * comes out is still an index, of which the target makes the sum anew.
 */
#include "tests/fuzz/mutate.h"

static bool draw_number(text *t, size_t *out_at, size_t *out_n)
{
    for (int tries = 0; tries < 8; tries++)
        if (draw_word(t, out_at, out_n) && isdigit((unsigned char)t->at[*out_at]))
            return true;
    return false;
}

/* Small numbers are likely: they make shapes and places that nearly fit. */
static void change_number(text *t)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "5",
                                          "6",
                                          "8",
                                          "9",
                                          "10",
                                          "12",
                                          "16",
                                          "17",
                                          "18",
                                          "-1",
                                          "0.5",
                                          "2147483647",
                                          "2147483648",
                                          "1048576",
                                          "1e15",
                                          "4503599627370496",
                                          "9007199254740992",
                                          "9223372036854775807"};
    enum { ALL = sizeof numbers / sizeof *numbers, SMALL = 10 };
    size_t at, n, from, nfrom;
    char other[32];
    if (!draw_number(t, &at, &n))
        return;
    if (draw(t, 3) == 0 && draw_number(t, &from, &nfrom) && nfrom < sizeof other) {
        snprintf(other, sizeof other, "%.*s", (int)nfrom, t->at + from);
        replace(t, at, n, other);
    } else {
        replace(t, at, n, numbers[draw(t, draw(t, 4) ? SMALL : ALL)]);
    }
}

/* The piece, "[1,[5,0],[5,12]]", at or after a drawn place. */
static bool draw_piece(text *t, size_t *out_at, size_t *out_n)
{
    size_t at = t->size ? draw(t, (uint32_t)t->size) : 0, end;
    while (at + 1 < t->size && !(t->at[at] == '[' && isdigit((unsigned char)t->at[at + 1])))
        at++;
    for (end = at; end + 1 < t->size && !(t->at[end] == ']' && t->at[end + 1] == ']');)
        end++;
    *out_at = at;
    *out_n = end + 2 - at;
    return end + 1 < t->size;
}

static void change_piece(text *t)
{
    size_t at, n;
    char piece[128];
    if (!draw_piece(t, &at, &n) || n + 2 > sizeof piece)
        return;
    if (draw(t, 2)) {
        replace(t, at, n + (at + n < t->size && t->at[at + n] == ','), "");
        return;
    }
    snprintf(piece, sizeof piece, "%.*s,", (int)n, t->at + at);
    replace(t, at, 0, piece);
}

/* Makes a tensor each rank's own, or one of all ranks. */
static void change_own(text *t)
{
    static const char own[] = "\"own\":true,", pieces[] = "\"pieces\"";
    size_t at, n;
    if (!draw_line(t, &at, &n))
        return;
    const char *is = memmem(t->at + at, n, own, sizeof own - 1);
    const char *list = memmem(t->at + at, n, pieces, sizeof pieces - 1);
    if (is)
        replace(t, (size_t)(is - t->at), sizeof own - 1, "");
    else if (list)
        replace(t, (size_t)(list - t->at), 0, own);
}

static void change_line(text *t)
{
    size_t at, n;
    char line[600];
    if (!draw_line(t, &at, &n) || n >= sizeof line)
        return;
    snprintf(line, sizeof line, "%.*s", (int)n, t->at + at);
    replace(t, at, n, "");
    if (draw(t, 2) && (draw(t, 2) || draw_line(t, &at, &n)))
        replace(t, at, 0, line);
}

/* The first byte is the target's own. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    if (size < 2 || most < 2)
        return LLVMFuzzerMutate(data, size, most);
    text t = {.at = (char *)data + 1, .size = size - 1, .most = most - 1, .rng = seed};
    switch (draw(&t, 12)) {
    case 0:
        change_own(&t);
        break;
    case 1:
    case 2:
        change_piece(&t);
        break;
    case 3:
        change_line(&t);
        break;
    case 4:
        return LLVMFuzzerMutate(data, size, most);
    default:
        change_number(&t);
    }
    return t.size + 1;
}
