/* SPDX-License-Identifier: Apache-2.0 */
/* What streams.cc and graphs.cc share: streams, events, and what is captured of them. */
#ifndef TESSERA_TESTS_CUDA_STREAMS_H
#define TESSERA_TESTS_CUDA_STREAMS_H

#include "tests/cuda/emulator/runtime.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

enum tsri_item_kind { WORK, RECORD, WAIT };

/* One record of an event. */
struct point {
    struct CUstream_st *stream;
    bool done = false;
    double at = 0;
};
struct item {
    enum tsri_item_kind kind;
    tsri_emulated_poll poll; /* WORK: until it returns true */
    std::shared_ptr<point> at;
};

/* A captured item: of which of the capture's streams, and which of its records. */
struct captured_item {
    size_t stream;
    enum tsri_item_kind kind;
    std::function<tsri_emulated_poll()> make; /* WORK: for each replay */
    size_t record;
};
/* How many items of each of a capture's streams come before. */
typedef std::map<size_t, int> clock_vector;

struct capture {
    std::vector<captured_item> items;
    std::vector<struct CUstream_st *> streams; /* the first is its origin's */
    std::vector<clock_vector> reached;         /* per stream */
    std::vector<clock_vector> records;
    bool invalid = false;
    int launches = 0; /* in the origin's stream, since others have joined */
};
struct CUstream_st {
    int device = 0;
    std::deque<item> queue;
    bool busy = false; /* a thread does its first item */
    bool dead = false; /* destroyed; its work goes on */
    std::shared_ptr<capture> into;
    bool origin = false;
};
struct CUevent_st {
    int device = 0;
    bool shared = false;         /* between processes */
    std::shared_ptr<point> at;   /* its last record; NULL: none */
    std::weak_ptr<capture> into; /* if that was captured; a graph's end is not put off by it */
    bool captured = false;
    size_t record = 0;
};

/* Of streams' queues, of captures' ends and of the list of streams. */
extern std::mutex &tsri_emulated_lock;
/* The calling thread's random numbers, by EMULATED_SEED. */
std::mt19937 &tsri_emulated_dice(void);
/* Keeps the error, and says why a call is refused. */
cudaError_t tsri_emulated_refuse(cudaError_t e, const char *why, const char *name = "");
/* graphs.cc: the stream's number in a capture, which it joins. */
size_t tsri_emulated_join(capture &c, CUstream_st *s);

#endif
