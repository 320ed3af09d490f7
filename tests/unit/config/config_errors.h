/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are wrong, and what is said of each behind the file's name. */
#ifndef TESSERA_TESTS_CONFIG_ERRORS_H
#define TESSERA_TESTS_CONFIG_ERRORS_H

/* clang-format off */
#define TRAIN \
    "tessera: 1\n" \
    "placements: {d: {ranks: [0, 1]}, grid: {ranks: [[0, 1], [2, 3]]}}\n" \
    "model: {name: mlp}\n" \
    "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n"
#define GRAPH \
    "tessera: 1\n" \
    "placements: {a: {ranks: [0, 1]}, g: {ranks: [[0, 1], [2, 3]]}}\n" \
    "graph:\n" \
    "  x: {op: constant, fill: 1, shape: [2, 2]}\n"

static const struct {
    const char *base;    /* a file that is fine, or nothing */
    const char *find;    /* its part that is replaced; NULL: the text is put behind it */
    const char *text, *error;
} config_errors[] = {
    {"", NULL, "[1]",
     "1:1: found a list; legal is a mapping with the keys tessera, dtype, placements, model, "
     "data, tensors, parameters, optimizer, graph, loss, fetch, train, cluster, memory_limit, "
     "bucket_mb, infer_updates"},
    {"", NULL, "a",
     "1:1: found 'a'; legal is a mapping with the keys tessera, dtype, placements, model, data, "
     "tensors, parameters, optimizer, graph, loss, fetch, train, cluster, memory_limit, "
     "bucket_mb, infer_updates"},
    {"", NULL, "tessera: 1\n",
     "1:1: 'placements' is missing; legal is a mapping from names"},
    {"", NULL, "tessera: 2\nplacements: {a: {ranks: [0]}}\n",
     "1:10: tessera: found '2'; legal is 1"},
    {"", NULL, "tessera: one\n",
     "1:10: tessera: found 'one'; legal is 1"},
    {"", NULL, "tessera: abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijx\n",
     "1:10: tessera: found 'abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij...'; "
     "legal is 1"},
    {"", NULL, "tessera: abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij\n",
     "1:10: tessera: found 'abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij'; "
     "legal is 1"},
    {"", NULL, "tessera: '1'\n",
     "1:10: tessera: found \"1\"; legal is 1"},
    {"", NULL, "placements: {}\n",
     "1:1: 'tessera' is missing; legal is 1"},
    {"", NULL, "tessera: 1\nplacements: {}\n",
     "2:13: placements: 0 entries; at least 1 is needed"},
    {"", NULL, "tessera: 1\nplacements: [0]\n",
     "2:13: placements: found a list; legal is a mapping from names"},
    {"", NULL, "tessera: 1\nplacements:\n",
     "2:12: placements: found nothing; legal is a mapping from names"},
    {"", NULL, "tessera: 1\nplacements: {a: {ranks: [0]}}\n",
     "1:1: neither 'model' nor 'graph' is there: an experiment trains a model, or runs a graph"},
    {TRAIN, NULL, "tesera: 1\n",
     "5:1: tesera: unknown key; legal are tessera, dtype, placements, model, data, tensors, "
     "parameters, optimizer, graph, loss, fetch, train, cluster, memory_limit, "
     "bucket_mb, infer_updates; did you mean "
     "'tessera'?"},
    {TRAIN, NULL, "optimiser: {name: sgd}\n",
     "5:1: optimiser: unknown key; legal are tessera, dtype, placements, model, data, tensors, "
     "parameters, optimizer, graph, loss, fetch, train, cluster, memory_limit, "
     "bucket_mb, infer_updates; did you mean "
     "'optimizer'?"},
    {TRAIN, NULL, "graph: {}\n",
     "5:8: graph: 0 entries; at least 1 is needed"},
    {TRAIN, NULL, "graph: {x: {op: full, value: 1, shape: []}}\n",
     "5:1: graph: not beside 'model': it is a key of experiments that run a graph"},
    {TRAIN, NULL, "fetch: x\n",
     "5:1: fetch: not beside 'model': it is a key of experiments that run a graph"},
    {GRAPH, NULL, "data: {dataset: mnist}\n",
     "5:1: data: not beside 'graph': it is a key of experiments that train a model"},
    {GRAPH, NULL, "optimizer: {name: sgd}\n",
     "5:1: optimizer: not beside 'graph': it is a key of experiments that train a model"},
    {"", NULL, "tessera: 1\nplacements: {d: {device: gpu, ranks: [0]}, grid: {ranks: [[0, 1], "
     "[2, 3]]}}\nmodel: {name: mlp}\ndata: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n",
     "2:26: placements.d.device: found 'gpu'; legal is cpu or cuda; did you mean 'cpu'?"},
    {"", NULL, "tessera: 1\nplacements: {d: {device: cuda}, grid: {ranks: [[0, 1], [2, "
     "3]]}}\nmodel: {name: mlp}\ndata: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n",
     "2:14: placements.d: 'ranks' is missing; legal is a list of ranks, in up to 4 levels, as in "
     "[[0, 1], [2, 3]]"},
    {TRAIN, " [0, 1", " [",
     "2:25: placements.d.ranks: an empty list; at least one rank is needed in each of up to 4 "
     "levels"},
    {TRAIN, " [0, 1]", " 0",
     "2:25: placements.d.ranks: found '0'; legal is a list of ranks, in up to 4 levels, as in "
     "[[0, 1], [2, 3]]"},
    {TRAIN, " [0, 1", " [0, 0",
     "2:29: placements.d.ranks[1]: rank 0 is there twice; a rank holds one shard"},
    {TRAIN, " [0, ", " [-",
     "2:26: placements.d.ranks[0]: found -1; legal are ranks from 0 to 65535"},
    {TRAIN, " [0, 1", " [65536",
     "2:26: placements.d.ranks[0]: found 65536; legal are ranks from 0 to 65535"},
    {TRAIN, " [0, 1", " [0.5",
     "2:26: placements.d.ranks[0]: found '0.5'; legal is a whole number"},
    {TRAIN, " [0, 1", " [a",
     "2:26: placements.d.ranks[0]: found 'a'; legal is a whole number"},
    {TRAIN, " [0", " [[0]",
     "2:31: placements.d.ranks[1]: a rank stands where a list is expected: the lists are nested "
     "unevenly"},
    {TRAIN, " [0, 1", " [0, [1]",
     "2:29: placements.d.ranks[1]: a list stands where a rank is expected: the lists are nested "
     "unevenly"},
    {TRAIN, " [0, 1", " [[0, 1], [2]",
     "2:34: placements.d.ranks[1]: this list is 1 long, the first one 2; a hierarchy is a full "
     "grid"},
    {TRAIN, " [0, 1", " [[[[[0]]]]",
     "2:29: placements.d.ranks[0][0][0][0]: more than 4 levels of lists"},
    {"", NULL, "tessera: 1\nplacements: {2d: {ranks: [0, 1]}, grid: {ranks: [[0, 1], [2, "
     "3]]}}\nmodel: {name: mlp}\ndata: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n",
     "2:14: placements.2d: not a name; legal are up to 100 letters, digits, _ and -, with a "
     "letter or _ first"},
    {"", NULL, "tessera: 1\nplacements: {'a b': {ranks: [0, 1]}, grid: {ranks: [[0, 1], [2, "
     "3]]}}\nmodel: {name: mlp}\ndata: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n",
     "2:14: placements.a b: not a name; legal are up to 100 letters, digits, _ and -, with a "
     "letter or _ first"},
    {TRAIN, "lp", "pl",
     "3:15: model.name: found 'mpl'; legal are mobilenet_v2, convnet, mlp, transformer, resnet18, "
     "lenet, gpt, lstm_lm; did you mean 'mlp'?"},
    {TRAIN, "{name: mlp}", "mlp",
     "3:8: model: found 'mlp'; legal is a mapping with the keys name"},
    {TRAIN, "name: mlp", "",
     "3:1: model: 'name' is missing; legal are mobilenet_v2, convnet, mlp, transformer, "
     "resnet18, lenet, gpt, lstm_lm"},
    {TRAIN, "name: mlp", "args: {}",
     "3:1: model: 'name' is missing; legal are mobilenet_v2, convnet, mlp, transformer, "
     "resnet18, lenet, gpt, lstm_lm"},
    {TRAIN, "lp", "lp, args: {num_classes: 10}",
     "3:27: model.args.num_classes: unknown key; legal are inputs, hidden, outputs, layers"},
    {"", NULL, "tessera: 1\nplacements: {d: {ranks: [0]}}\nmodel: {name: convnet}\n"
     "data: {dataset: synthetic, shape: [1, 4, 2], classes: 3}\n",
     "3:8: model: width follows from the data: 2; legal is a whole number of at least 4"},
    {"", NULL, "tessera: 1\nplacements: {d: {ranks: [0]}}\nmodel: {name: mlp}\n"
     "data: {dataset: synthetic, shape: [1, 268435456, 268435456], classes: 3}\n",
     "3:8: model: inputs follows from the data: 72057594037927936; legal is at most "
     "9007199254740992"},
    {TRAIN, "lp", "lp, args: {hidden: 0}",
     "3:35: model.args.hidden: found '0'; legal is a whole number of at least 1"},
    {TRAIN, "lp", "lp, args: {hidden: 1.5}",
     "3:35: model.args.hidden: found '1.5'; legal is a whole number"},
    {TRAIN, "lp", "lp, args: {hidden: 99999999999999999999}",
     "3:35: model.args.hidden: '99999999999999999999' is out of the range of 64 bits"},
    {TRAIN, "lp", "lp, args: {hidden: 1e3}",
     "3:35: model.args.hidden: found '1e3'; legal is a whole number"},
    {TRAIN, "lp", "lp, args: {layers: 5000}",
     "3:35: model.args.layers: found '5000'; legal is a whole number from 1 to 1024"},
    {TRAIN, "lp", "obilenet_v2, args: {variant: cifra}",
     "3:45: model.args.variant: found 'cifra'; legal is torchvision or cifar; did you mean "
     "'cifar'?"},
    {TRAIN, "lp", "obilenet_v2, args: {dropout: 1}",
     "3:45: model.args.dropout: found '1'; legal is a number from 0 to 0.999999"},
    {TRAIN, "lp", "obilenet_v2, args: {width: .inf}",
     "3:43: model.args.width: '.inf' is not finite"},
    {TRAIN, "lp", "obilenet_v2, args: {width: 1e999}",
     "3:43: model.args.width: '1e999' is out of range; the largest is 1.8e308"},
    {TRAIN, "lp", "obilenet_v2, args: {width: wide}",
     "3:43: model.args.width: found 'wide'; legal is a number from 0.01 to 16"},
    {TRAIN, "lp", "obilenet_v2, args: {width: '1'}",
     "3:43: model.args.width: found \"1\"; legal is a number from 0.01 to 16"},
    {TRAIN, "synthetic", "cifar-10",
     "4:17: data.dataset: found 'cifar-10'; legal are cifar10, mnist, synthetic; did you mean "
     "'cifar10'?"},
    {TRAIN, "dataset: synthetic, ", "",
     "4:1: data: 'dataset' is missing; legal are cifar10, mnist, synthetic"},
    {TRAIN, ", classes: 3", "",
     "4:1: data: 'classes' is missing; legal is a whole number from 1 to 256"},
    {TRAIN, "4, 4", "4, 4, 4",
     "4:35: data.shape: found a list; legal is a list of up to 3 sizes, each of at least 1"},
    {TRAIN, "1, 4, 4", "0",
     "4:36: data.shape[0]: found 0; legal are sizes from 1 to 2^48"},
    {TRAIN, "[1, 4, 4]", "4",
     "4:35: data.shape: found '4'; legal is a list of up to 3 sizes, each of at least 1"},
    {TRAIN, ": 3", ": 3, dir: x",
     "4:58: data.dir: unknown key; legal are dataset, batch_size, shuffle, augment, normalize, "
     "seed, workers, prefetch, shape, classes, samples, test_samples"},
    {TRAIN, ": 3", ": 3, shuffle: yes",
     "4:67: data.shuffle: found 'yes'; legal is true or false"},
    {TRAIN, ": 3", ": 3, shuffle: 'true'",
     "4:67: data.shuffle: found \"true\"; legal is true or false"},
    {TRAIN, ": 3", ": 3, batchsize: 3",
     "4:58: data.batchsize: unknown key; legal are dataset, batch_size, shuffle, augment, "
     "normalize, seed, workers, prefetch, shape, classes, samples, test_samples; did you mean "
     "'batch_size'?"},
    {TRAIN, ": 3", ": 257",
     "4:55: data.classes: found '257'; legal is a whole number from 1 to 256"},
    {TRAIN, "\ndata", "\ndaat",
     "4:1: daat: unknown key; legal are tessera, dtype, placements, model, data, tensors, "
     "parameters, optimizer, graph, loss, fetch, train, cluster, memory_limit, "
     "bucket_mb, infer_updates; did you mean "
     "'data'?"},
    {TRAIN, "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n", "",
     "1:1: 'data' is missing: what the model is trained on"},
    {TRAIN, NULL, "bucket_mb: -1\n",
     "5:12: bucket_mb: found '-1'; legal is a number from 0 to 1000000"},
    {TRAIN, NULL, "dtype: f16\n",
     "5:8: dtype: found 'f16'; legal is f32 or f64; did you mean 'f32'?"},
    {TRAIN, NULL, "tensors: {inputs: {sbp: B}}\n",
     "5:11: tensors.inputs: unknown key; legal are input, label, logits, loss; did you mean "
     "'input'?"},
    {TRAIN, NULL, "tensors: {input: {placement: e}}\n",
     "5:30: tensors.input.placement: there is no placement 'e'; legal are d, grid"},
    {TRAIN, NULL, "tensors: {input: {placement: grdi}}\n",
     "5:30: tensors.input.placement: there is no placement 'grdi'; legal are d, grid; did you "
     "mean 'grid'?"},
    {TRAIN, NULL, "tensors: {input: {sbp: S}}\n",
     "5:24: tensors.input.sbp: signature \"S\": column 2: a split names its axis, as in S(0)"},
    {TRAIN, NULL, "tensors: {input: {sbp: 'S(0),B'}}\n",
     "5:24: tensors.input.sbp: signature \"S(0),B\": column 5: nothing may follow the signature; "
     "legal are S(0), B, P, P(max), P(min), or several as in (S(0),B)"},
    {TRAIN, NULL, "tensors: {input: {sbp: '(S(0),B)'}}\n",
     "5:24: tensors.input.sbp: signature (S(0),B) has 2 entries; placement d has 1 dimension, "
     "and a signature one entry for each"},
    {TRAIN, NULL, "tensors: {input: {placement: grid, sbp: S(0)}}\n",
     "5:41: tensors.input.sbp: signature S(0) has 1 entry; placement grid has 2 dimensions, and "
     "a signature one entry for each"},
    {TRAIN, NULL, "tensors: {input: {placement: grid, sbp: [S(0), Q]}}\n",
     "5:41: tensors.input.sbp: signature \"(S(0),Q)\": column 7: expected S(0), B, P, P(max), "
     "P(min), or several as in (S(0),B)"},
    {TRAIN, NULL, "tensors: {input: {placement: grid, sbp: [P, P(max)]}}\n",
     "5:41: tensors.input.sbp: signature \"(P,P(max))\": column 4: P(max) beside P(sum); a "
     "signature has partials of one kind only"},
    {TRAIN, NULL, "tensors: {input: {sbp: [B, B, B, B, B]}}\n",
     "5:37: tensors.input.sbp[4]: a signature has at most 4 entries, one for each dimension of "
     "its placement"},
    {TRAIN, NULL, "tensors: {input: {sbp: {}}}\n",
     "5:24: tensors.input.sbp: found a mapping; legal is a signature, as in S(0), B, P, auto, "
     "\"(S(0),B)\" or [S(0), B]"},
    {TRAIN, NULL, "tensors: {input: S(0)}\n",
     "5:18: tensors.input: found 'S(0)'; legal is a mapping with the keys placement, sbp"},
    {TRAIN, NULL, "parameters: {match: '*'}\n",
     "5:13: parameters: found a mapping; legal is a list of mappings"},
    {TRAIN, NULL, "parameters: [{sbp: B}]\n",
     "5:1: parameters[0]: 'match' is missing; legal is a text (numbers in quotes)"},
    {TRAIN, NULL, "parameters: [{match: '*', sbp: P}]\n",
     "5:32: parameters[0].sbp: P is for values that are computed; legal are B, S(i) and auto"},
    {TRAIN, NULL, "parameters: [{match: '*', placement: x}]\n",
     "5:38: parameters[0].placement: there is no placement 'x'; legal are d, grid"},
    {TRAIN, NULL, "parameters: ['*']\n",
     "5:14: parameters[0]: found \"*\"; legal is a mapping with the keys match, placement, sbp"},
    {TRAIN, NULL, "parameters: [{match: 5}]\n",
     "5:22: parameters[0].match: found '5'; legal is a text (numbers in quotes)"},
    {TRAIN, NULL, "parameters: [{match: a, placement: grid, sbp: S(0)}]\n",
     "5:47: parameters[0].sbp: signature S(0) has 1 entry; placement grid has 2 dimensions, and "
     "a signature one entry for each"},
    {TRAIN, NULL, "optimizer: {name: sgdd}\n",
     "5:19: optimizer.name: found 'sgdd'; legal are sgd, adam, adamw, rmsprop, adagrad, "
     "lion, lamb, own; did you mean 'sgd'?"},
    {TRAIN, NULL, "optimizer: {lr: 1}\n",
     "5:1: optimizer: 'name' is missing; legal are sgd, adam, adamw, rmsprop, adagrad, lion, lamb, "
     "own"},
    {TRAIN, NULL, "optimizer: {name: sgd, beta1: 0.9}\n",
     "5:24: optimizer.beta1: unknown key; legal are name, schedule, state, groups, clip_norm, "
     "clip_value, accumulate, loss_scale, lr, momentum, dampening, weight_decay, nesterov"},
    {TRAIN, NULL, "optimizer: {name: adam, beta1: 1}\n",
     "5:32: optimizer.beta1: found '1'; legal is a number from 0 to 0.999999999"},
    {TRAIN, NULL, "optimizer: {name: sgd, lr: -1}\n",
     "5:28: optimizer.lr: found '-1'; legal is a number of at least 0"},
    {TRAIN, NULL, "optimizer: {name: sgd, schedule: cosine}\n",
     "5:34: optimizer.schedule: found 'cosine'; legal is a mapping with the keys name, warmup"},
    {TRAIN, NULL, "optimizer: {name: sgd, schedule: {name: step}}\n",
     "5:24: optimizer.schedule: 'step_size' is missing; legal is a whole number of at least 1"},
    {TRAIN, NULL, "optimizer: {name: sgd, schedule: {name: constant, steps: 3}}\n",
     "5:51: optimizer.schedule.steps: unknown key; legal are name, warmup"},
    {TRAIN, NULL, "optimizer: {name: sgd, state: {spb: B}}\n",
     "5:32: optimizer.state.spb: unknown key; legal are sbp; did you mean 'sbp'?"},
    {TRAIN, NULL, "optimizer: {name: sgd, lr: nan}\n",
     "5:28: optimizer.lr: found 'nan'; legal is a number of at least 0"},
    {TRAIN, NULL, "optimizer: {name: sgd, lr: .nan}\n",
     "5:28: optimizer.lr: '.nan' is not finite"},
    {TRAIN, NULL, "optimizer: {name: sgd, lr: 0x10}\n",
     "5:28: optimizer.lr: found '0x10'; legal is a number"},
    {TRAIN, NULL, "train: {stepz: 1}\n",
     "5:9: train.stepz: unknown key; legal are epochs, steps, seed, init, label_smoothing, "
     "on_nan, eval, checkpoint, metrics, tensorboard; did you mean 'steps'?"},
    {TRAIN, NULL, "train: {eval: {every: 2 epoch s}}\n",
     "5:23: train.eval.every: found '2 epoch s'; legal is a number of steps, as in 100, or of "
     "epochs, as in 1 epoch"},
    {TRAIN, NULL, "train: {eval: {every: 0}}\n",
     "5:23: train.eval.every: found '0'; legal is a number of steps, as in 100, or of epochs, "
     "as in "
     "1 epoch"},
    {TRAIN, NULL, "train: {eval: {every: 99999999999999999999}}\n",
     "5:23: train.eval.every: found '99999999999999999999'; legal is a number of steps, as in 100, "
     "or of epochs, as in 1 epoch"},
    {TRAIN, NULL, "train: {eval: {every: [1]}}\n",
     "5:23: train.eval.every: found a list; legal is a number of steps, as in 100, or of "
     "epochs, as "
     "in 1 epoch"},
    {TRAIN, NULL, "train: {eval: {data: tset}}\n",
     "5:22: train.eval.data: found 'tset'; legal is train or test; did you mean 'test'?"},
    {TRAIN, NULL, "train: {eval: 5}\n",
     "5:15: train.eval: found '5'; legal is a mapping with the keys every, data"},
    {TRAIN, NULL, "train: {checkpoint: {every: 5}}\n",
     "5:9: train.checkpoint: 'dir' is missing; legal is a file name"},
    {TRAIN, NULL, "train: {checkpoint: {dir: a, evry: 5}}\n",
     "5:30: train.checkpoint.evry: unknown key; legal are dir, every, keep, resume; did you mean "
     "'every'?"},
    {TRAIN, NULL, "train: {checkpoint: {dir: a, every: -1 epochs}}\n",
     "5:37: train.checkpoint.every: found '-1 epochs'; legal is a number of steps, as in 100, "
     "or of "
     "epochs, as in 1 epoch"},
    {TRAIN, NULL, "train: {metrics: 5}\n",
     "5:18: train.metrics: found '5'; legal is a file name"},
    {GRAPH, NULL, "train: {checkpoint: {dir: a}}\n",
     "5:9: train.checkpoint: not beside 'graph': it is a key of experiments that train a model"},
    {GRAPH, NULL, "train: {eval: {}}\n",
     "5:9: train.eval: not beside 'graph': it is a key of experiments that train a model"},
    {TRAIN, NULL, "train: {steps: -1}\n",
     "5:16: train.steps: found '-1'; legal is a whole number of at least 0"},
    {TRAIN, NULL, "train: {on_nan: halt}\n",
     "5:17: train.on_nan: found 'halt'; legal is stop, warn or ignore"},
    {TRAIN, NULL, "train: {init: 5}\n",
     "5:15: train.init: found '5'; legal is a file name"},
    {TRAIN, NULL, "train: {init: ''}\n",
     "5:15: train.init: found \"\"; legal is a file name"},
    {TRAIN, NULL, "train: 5\n",
     "5:8: train: found '5'; legal is a mapping with the keys epochs, steps, seed, init, "
     "label_smoothing, on_nan, eval, checkpoint, metrics, tensorboard"},
    {TRAIN, NULL, "train: {label_smoothing: 1}\n",
     "5:26: train.label_smoothing: found '1'; legal is a number from 0 to 0.999999"},
    {TRAIN, NULL, "train:\n",
     "5:7: train: found nothing; legal is a mapping with the keys epochs, steps, seed, init, "
     "label_smoothing, on_nan, eval, checkpoint, metrics, tensorboard"},
    {TRAIN, NULL, "train: {steps: }\n",
     "5:16: train.steps: found nothing; legal is a whole number of at least 0"},
    {TRAIN, NULL, "train: {steps: ~}\n",
     "5:16: train.steps: found '~'; legal is a whole number of at least 0"},
    {TRAIN, NULL, "memory_limit: lots\n",
     "5:15: memory_limit: found 'lots'; legal is a number of bytes, as in 1048576 or \"512 MiB\""},
    {TRAIN, NULL, "memory_limit: 512 MeB\n",
     "5:15: memory_limit: found '512 MeB'; legal is a number of bytes, as in 1048576 or \"512 "
     "MiB\""},
    {TRAIN, NULL, "memory_limit: 0\n",
     "5:15: memory_limit: found 0; legal is at least one byte, below 2^62"},
    {TRAIN, NULL, "memory_limit: -5\n",
     "5:15: memory_limit: found '-5'; legal is a number of bytes, as in 1048576 or \"512 MiB\""},
    {TRAIN, NULL, "memory_limit: 9e99\n",
     "5:15: memory_limit: found 9e99; legal is at least one byte, below 2^62"},
    {TRAIN, NULL, "cluster: {nodes: 3}\n",
     "5:11: cluster.nodes: unknown key; legal are ranks_per_node, latency_us, bandwidth_gb_s, "
     "node_latency_us, node_bandwidth_gb_s, memory_gb_s, tflops, kernel_us"},
    {TRAIN, NULL, "cluster: {latency_us: 0}\n",
     "5:23: cluster.latency_us: found '0'; legal is a number from 1e-06 to 1000000000"},
    {GRAPH, NULL, "  y: {op: relu}\n",
     "5:3: graph.y: 'in' is missing; legal is a name, or a list of names"},
    {GRAPH, NULL, "  y: {op: relu, in: z}\n",
     "5:21: graph.y.in: there is no entry 'z'; legal are x"},
    {GRAPH, NULL, "  y: {op: relu, in: [x, x]}\n",
     "5:21: graph.y.in: 2 operands; relu takes x (? may be left out)"},
    {GRAPH, NULL, "  y: {op: linear, in: [x]}\n",
     "5:23: graph.y.in: 1 operand; linear takes x w b? (? may be left out)"},
    {GRAPH, NULL, "  y: {op: relu, in: y}\n",
     "5:21: graph.y.in: an entry can't use itself; it uses those above it"},
    {GRAPH, NULL, "  y: {op: relu, in: later}\n  later: {op: relu, in: x}\n",
     "5:21: graph.y.in: 'later' is declared later, in line 6; entries use those above them"},
    {GRAPH, NULL, "  y: {op: relu, in: 'X'}\n",
     "5:21: graph.y.in: there is no entry 'X'; legal are x; did you mean 'x'?"},
    {GRAPH, NULL, "  y: {op: relu, in: {}}\n",
     "5:21: graph.y.in: found a mapping; legal is a name, or a list of names"},
    {GRAPH, NULL, "  y: {op: relu, in: [[x]]}\n",
     "5:22: graph.y.in[0]: found a list; legal is a name, or a list of names"},
    {GRAPH, NULL, "  y: {op: relu, in: x, alpha: 1}\n",
     "5:24: graph.y.alpha: unknown key; legal are op, in, placement, sbp"},
    {GRAPH, NULL, "  y: {op: relu, in: x, sbp: S(0,1)}\n",
     "5:33: graph.y.1): unknown key; legal are op, in, placement, sbp; texts with commas need "
     "quotes, as in \"(S(0),B)\""},
    {GRAPH, NULL, "  y: {op: relu, in: x, placement: b}\n",
     "5:35: graph.y.placement: there is no placement 'b'; legal are a, g"},
    {GRAPH, NULL, "  y: {op: relu, in: x, placement: g, sbp: S(0)}\n",
     "5:43: graph.y.sbp: signature S(0) has 1 entry; placement g has 2 dimensions, and a "
     "signature one entry for each"},
    {GRAPH, NULL, "  y: {op: full, value: 1, shape: [2], in: x}\n",
     "5:39: graph.y.in: unknown key; legal are op, placement, sbp, shape, value, dtype"},
    {GRAPH, NULL, "  y: {op: full, shape: [2]}\n",
     "5:3: graph.y: 'value' is missing; legal is a number"},
    {GRAPH, NULL, "  y: {op: full, value: 1, shape: [-1]}\n",
     "5:35: graph.y.shape[0]: found -1; legal are sizes from 0 to 2^48"},
    {GRAPH, NULL, "  y: {op: full, value: 1, shape: [1099511627776, 1099511627776]}\n",
     "5:34: graph.y.shape: a shape of more than 2^56 elements"},
    {GRAPH, NULL, "  y: {op: full, value: 1, shape: [999999999999999]}\n",
     "5:35: graph.y.shape[0]: found 999999999999999; legal are sizes from 0 to 2^48"},
    {GRAPH, NULL, "  y: {op: to_global, in: x}\n",
     "5:3: graph.y: neither 'placement' nor 'sbp' is there: to where, or to what?"},
    {GRAPH, NULL, "  y: {op: sum, in: x, axes: 9}\n",
     "5:29: graph.y.axes: found 9; legal are axes from -8 to 7 (negative: from the end)"},
    {GRAPH, NULL, "  y: {op: sum, in: x, axes: a}\n",
     "5:29: graph.y.axes: found 'a'; legal is a whole number"},
    {GRAPH, NULL, "  y: {op: sum, in: x, axes: [0,1,2,3,4,5,6,7,8]}\n",
     "5:29: graph.y.axes: found a list; legal is an axis, or a list of axes"},
    {GRAPH, NULL, "  y: {op: conv2d, in: [x, x], stride: 0}\n",
     "5:39: graph.y.stride: found '0'; legal is a whole number of at least 1, or two: [height, "
     "width]"},
    {GRAPH, NULL, "  y: {op: conv2d, in: [x, x], stride: [1, 2, 3]}\n",
     "5:39: graph.y.stride: found a list; legal is a whole number of at least 1, or two: "
     "[height, width]"},
    {GRAPH, NULL, "  y: {op: cross_entropy, in: [x, x], reduction: avg}\n",
     "5:49: graph.y.reduction: found 'avg'; legal is mean, sum or none"},
    {GRAPH, NULL, "  y: {op: cast, in: x, dtype: f33}\n",
     "5:31: graph.y.dtype: found 'f33'; legal is f32, f16, bf16, f64, i64, i32, u8 or bool; did "
     "you mean 'f32'?"},
    {GRAPH, NULL, "  y: {op: cast, in: x}\n",
     "5:3: graph.y: 'dtype' is missing; legal is f32, f16, bf16, f64, i64, i32, u8 or bool"},
    {GRAPH, NULL, "  y: {op: constant}\n",
     "5:3: graph.y: a value is missing; legal are value, file, fill, arange, normal or uniform"},
    {GRAPH, NULL, "  y: {op: constant, value: 1, fill: 2}\n",
     "5:31: graph.y.fill: not beside 'value': one of them says the value"},
    {GRAPH, NULL, "  y: {op: constant, fill: 2}\n",
     "5:21: graph.y.fill: 'shape' is missing beside it"},
    {GRAPH, NULL, "  y: {op: constant, value: [[1, 2], [3]]}\n",
     "5:37: graph.y.value[1]: this list is 1 long, the first one 2"},
    {GRAPH, NULL, "  y: {op: constant, value: [1, [2]]}\n",
     "5:32: graph.y.value[1]: a list stands where a number is expected: the lists are nested "
     "unevenly"},
    {GRAPH, NULL, "  y: {op: constant, value: [[1], 2]}\n",
     "5:34: graph.y.value[1]: a number stands where a list is expected: the lists are nested "
     "unevenly"},
    {GRAPH, NULL, "  y: {op: constant, value: [1, x]}\n",
     "5:32: graph.y.value[1]: found 'x'; legal is a number"},
    {GRAPH, NULL, "  y: {op: constant, value: [1, 1e39]}\n",
     "5:32: graph.y.value[1]: 1e+39 is too large for f32, whose largest is 3.40282e+38"},
    {GRAPH, NULL, "  y: {op: constant, value: [1, .nan]}\n",
     "5:32: graph.y.value[1]: '.nan' is not finite"},
    {GRAPH, NULL, "  y: {op: constant, value: [300], dtype: u8}\n",
     "5:29: graph.y.value[0]: 300 is no u8; these go from 0 to 255"},
    {GRAPH, NULL, "  y: {op: constant, value: [1.5], dtype: i64}\n",
     "5:29: graph.y.value[0]: found '1.5'; legal is a whole number"},
    {GRAPH, NULL, "  y: {op: constant, value: [2], dtype: bool}\n",
     "5:29: graph.y.value[0]: found '2'; legal is true or false"},
    {GRAPH, NULL, "  y: {op: constant, value: [2, 3], shape: [3]}\n",
     "5:43: graph.y.shape: the value has another shape: 1 axes, the first of 2"},
    {GRAPH, NULL, "  y: {op: constant, value: {a: 1}}\n",
     "5:28: graph.y.value: found a mapping; legal is a number"},
    {GRAPH, NULL, "  y: {op: constant, value: [[[[[[[[[1]]]]]]]]]}\n",
     "5:36: graph.y.value[0][0][0][0][0][0][0][0]: lists are nested more than 8 deep; a tensor "
     "has at most as many axes"},
    {GRAPH, NULL, "  y: {op: constant, normal: [0, -1], shape: [2]}\n",
     "5:29: graph.y.normal: a standard deviation of -1; it is at least 0"},
    {GRAPH, NULL, "  y: {op: constant, normal: [0], shape: [2]}\n",
     "5:29: graph.y.normal: found a list; legal is two numbers, as in [0, 1], or true for these"},
    {GRAPH, NULL, "  y: {op: constant, normal: true, shape: [2], dtype: i64}\n",
     "5:21: graph.y.normal: random numbers are floating point; dtype is i64"},
    {GRAPH, NULL, "  y: {op: constant, arange: [0, 0.5], shape: [2], dtype: i64}\n",
     "5:29: graph.y.arange: i64 are whole numbers, of at most 2^53 here"},
    {GRAPH, NULL, "  y: {op: constant, fill: 70000, shape: [2], dtype: f16}\n",
     "5:27: graph.y.fill: 70000 is too large for f16"},
    {GRAPH, NULL, "  y: {op: constant, fill: 1e18, shape: [2], dtype: i64}\n",
     "5:27: graph.y.fill: 1e+18 is no i64; these go from -9007199254740992 to "
     "9007199254740992 here"},
    {GRAPH, NULL, "  y: {op: constant, fill: 256, shape: [2], dtype: u8}\n",
     "5:27: graph.y.fill: 256 is no u8; these go from 0 to 255 here"},
    {GRAPH, NULL, "  y: {op: constant, arange: [0, 2147483647], shape: [3], dtype: i32}\n",
     "5:29: graph.y.arange: 4294967294 is no i32; these go from -2147483648 to 2147483647 here"},
    {GRAPH, NULL, "  y: {op: constant, arange: [0, -1], shape: [3], dtype: u8}\n",
     "5:29: graph.y.arange: -2 is no u8; these go from 0 to 255 here"},
    {GRAPH, NULL, "  y: {op: constant, arange: [0, 60000], shape: [3], dtype: f16}\n",
     "5:29: graph.y.arange: 120000 is too large for f16"},
    {GRAPH, NULL, "  y: {op: from_local, locals: [1, 2]}\n",
     "5:3: graph.y: 'sbp' is missing; from_local must say what the parts are: S(i), B or P"},
    {GRAPH, NULL, "  y: {op: from_local, locals: [1], sbp: P}\n",
     "5:31: graph.y.locals: 1 values; placement a has 2 ranks"},
    {GRAPH, NULL, "  y: {op: from_local, locals: 1, sbp: P}\n",
     "5:31: graph.y.locals: found '1'; legal is a list with one value, or .npy file, for each "
     "rank"},
    {GRAPH, NULL, "  y: {op: from_local, sbp: P}\n",
     "5:3: graph.y: 'locals' is missing; legal is numbers, in lists of lists"},
    {GRAPH, NULL, "  y: {op: from_local, locals: [[1], [x, 2]], sbp: S(0)}\n",
     "5:38: graph.y.locals[1][0]: found 'x'; legal is a number"},
    {GRAPH, NULL, "  y: {op: split, in: x, sizes: [1, 1]}\n  z: {op: relu, in: y}\n",
     "6:21: graph.z.in: 'y' has 2 results; legal are y.0 to y.1"},
    {GRAPH, NULL, "  y: {op: split, in: x, sizes: [1, 1]}\n  z: {op: relu, in: y.2}\n",
     "6:21: graph.z.in: 'y' has 2 results; legal are y.0 to y.1"},
    {GRAPH, NULL, "  z: {op: relu, in: x.0}\n",
     "5:21: graph.z.in: 'x' has one result, called by its name alone"},
    {GRAPH, NULL, "  z: {op: relu, in: q.0}\n",
     "5:21: graph.z.in: there is no entry 'q.0'; legal are x"},
    {GRAPH, NULL, "  y: {op: split, in: x, sizes: [2]}\n",
     "5:32: graph.y.sizes: 1 sizes; legal are 2 to 64"},
    {GRAPH, NULL, "  y: {op: split, in: x, sizes: 2}\n",
     "5:32: graph.y.sizes: found '2'; legal is a list of whole numbers"},
    {GRAPH, NULL, "  y: {op: slice, in: x, starts: [a]}\n",
     "5:34: graph.y.starts[0]: found 'a'; legal is a whole number"},
    {GRAPH, NULL, "  y: {op: slice, in: x, starts: [0,0,0,0,0,0,0,0,0]}\n",
     "5:33: graph.y.starts: found a list; legal is a list of up to 8 whole numbers, one for each "
     "axis"},
    {GRAPH, NULL, "  y: {op: concat, in: []}\n",
     "5:23: graph.y.in: 0 operands; concat takes x... (? may be left out)"},
    {GRAPH, NULL, "loss: y\n",
     "5:7: loss: there is no entry 'y'; legal are x"},
    {GRAPH, NULL, "  y: {op: relu, in: x, sbp: (S(0),B)}\n",
     "5:35: graph.y.B): unknown key; legal are op, in, placement, sbp; texts with commas need "
     "quotes, as in \"(S(0),B)\""},
    {TRAIN, NULL, "a: &x\n",
     "5:4: anchors (&name) are not allowed; write the value out"},
    {GRAPH, NULL, "loss: [x]\n",
     "5:7: loss: found a list; legal is a name"},
    {GRAPH, NULL, "fetch: [x, y]\n",
     "5:12: fetch[1]: there is no entry 'y'; legal are x"},
    {GRAPH, NULL, "fetch: [x, x]\n",
     "5:12: fetch[1]: 'x' is there twice"},
    {GRAPH, NULL, "fetch: []\n",
     "5:8: fetch: 0 names; legal are 1 to 1024"},
    {GRAPH, NULL, "fetch: grad(x)\n",
     "5:8: fetch: 'loss' is missing: gradients are those of the entry that it names"},
    {GRAPH, NULL, "loss: x\nfetch: grad(y)\n",
     "6:8: fetch: there is no entry 'y'; legal are x"},
    {GRAPH, NULL, "loss: x\nfetch: grad()\n",
     "6:8: fetch: there is no entry 'grad()'; legal are x"},
    {GRAPH, NULL, "loss: x\nfetch: 'grad(x'\n",
     "6:8: fetch: there is no entry 'grad(x'; legal are x"},
    {"", NULL, "tessera: 1\nplacements: {a: {ranks: [0]}}\ngraph: {y: {op: relu, in: x}}\n",
     "3:27: graph.y.in: there is no entry 'x' before it: it is the first entry"},
    {"", NULL, "tessera: 1\nplacements: {a: {ranks: [0]}}\ngraph: {}\n",
     "3:8: graph: 0 entries; at least 1 is needed"},
    {"", NULL, "tessera: 1\nplacements: {a: {ranks: [0]}}\ngraph: [1]\n",
     "3:8: graph: found a list; legal is a mapping from names"},
};
/* clang-format on */

#endif
