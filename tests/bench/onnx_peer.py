#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's side of scripts/bench: inference of the nets of torch_nets.py, as torch.onnx.export writes them,
in f32 or f64 and on one rank.

usage: onnx_peer.py nets NET infer BATCH 1 THREADS

The session has THREADS threads within an op, which wait as they do by default.
"""
import contextlib
import os
import re
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bench_data  # noqa: E402

import onnxruntime  # noqa: E402
import torch  # noqa: E402
import torch_peer  # noqa: E402


def export(net, inputs, path):
    """Writes the net as a graph of ONNX. The exporter that follows torch.export writes a recurrent layer's steps one by
    one, so those nets take the older one, as do versions of PyTorch where that is all there is."""
    recurrent = any(isinstance(m, torch.nn.LSTM) for m in net.modules())
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    more = {} if version < (2, 6) else {"dynamo": False} if recurrent else {"dynamo": True, "external_data": False}
    names = [f"input{i}" for i in range(len(inputs))]
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, tuple(inputs), path, input_names=names, **more)
    return names


def session_of(name, mode, batch, threads):
    torch.set_num_threads(threads)
    net = torch_peer.make_net(name, mode).eval()
    inputs = torch_peer.make_inputs(name, mode, batch)
    parameters = sum(p.numel() for p in net.parameters())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="bench-onnx-") as folder:
        path = os.path.join(folder, "net.onnx")
        names = export(net.to(memory_format=torch.contiguous_format), [x.contiguous() for x in inputs], path)
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as e:  # noqa: BLE001 (its own exceptions have no common type)
            missing = re.search(r"Could not find an implementation for (\S+)", str(e))
            if not missing:
                raise
            bench_data.refuse(f"it has no kernel for {missing[1]} of {name}")
    return session, dict(zip(names, (x.contiguous().numpy() for x in inputs))), parameters


def nets(name, mode, batch, ranks, threads):
    if mode != "infer" or ranks != "1":
        bench_data.refuse("it is compared in inference in f32 and f64 on one rank alone")
    session, feeds, parameters = session_of(name, mode, int(batch), int(threads))
    result = [None]

    def step():
        result[0] = session.run(None, feeds)[0]
        return float(result[0].flat[0])

    bench_data.say(parameters=parameters, onnxruntime=onnxruntime.__version__)
    for line in sys.stdin:
        answer = bench_data.timed(step, int(line))
        bench_data.say(**answer, size=bench_data.size(result[0]))


if __name__ == "__main__":
    nets(*sys.argv[2:])
