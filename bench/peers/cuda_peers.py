#!/usr/bin/env python3
"""Times other kernels for Hopper on the shapes of `deepinfer bench ops --backend cuda` and prints the
same kind of JSON lines, so that both can be run one after the other on one machine.

    PYTHONPATH=SITE bench/peers/cuda_peers.py [cublas] [humming] [flash_mla] [top_k]

SITE holds the wheels sgl-flash-mla and tokenspeed-humming (MIT and Apache-2.0; `pip download --no-deps`),
which run under the PyTorch of the machine. CUB's top-k is in cub_top_k.cu. A peer that does not load or run prints a line with "error".
Weights and activations are random; the operands of small products rotate, so that they come from
memory rather than from the L2 cache, as in our benchmark.
"""

import json
import sys

import torch

HIDDEN, INNER, EXPERTS, TOP_K = 5120, 2304, 384, 6
LINEARS = {
    "wq_a 1280x5120": (1280, 5120),
    "wkv 512x5120": (512, 5120),
    "wq_b 32768x1280": (32768, 1280),
    "index wq_b 4096x1280": (4096, 1280),
    "wo_b 5120x8192": (5120, 8192),
    "engram wkv 25600x6144": (25600, 6144),
}


def graph_us(run, calls):
    """Microseconds of one of `calls` calls that `run` enqueues: the median of seven graph replays."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times[2:])[3] * 1e3 / calls


def line(peer, shape, rows, us=None, num_bytes=0.0, flops=0.0, error=None):
    """Prints one result."""
    fields = {"name": "peer", "peer": peer, "shape": shape, "rows": rows}
    if error is not None:
        fields["error"] = repr(error)[:200]
    else:
        fields |= {"us": us, "tbps": num_bytes / us / 1e6, "tflops": flops / us / 1e6}
    print(json.dumps(fields), flush=True)


def cublas():
    """bf16 products of torch.mm on weights expanded to bf16."""
    for shape, (n, k) in LINEARS.items():
        copies = max(1, min(16, int(256e6 // (n * k * 2)) + 1))
        weights = [torch.randn(n, k, dtype=torch.bfloat16, device="cuda") for _ in range(copies)]
        for rows in (1, 8, 64, 512, 1024, 4096):
            x = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
            y = torch.empty(rows, n, dtype=torch.bfloat16, device="cuda")

            def run(x=x, y=y, weights=weights):
                for w in weights:
                    torch.mm(x, w.T, out=y)

            us = graph_us(run, copies)
            line("cublas bf16", shape, rows, us, 2.0 * n * k, 2.0 * rows * n * k)


def humming():
    """MXFP4 weights, bf16 activations: one matrix, and the routed gate and up of the model's layer."""
    from humming.layer import HummingLayer

    def layer(n, k, experts=None):
        lead = () if experts is None else (experts,)
        more = {} if experts is None else {"num_experts": experts}
        made = HummingLayer(
            shape_n=n, shape_k=k, weight_config={"quant_method": "mxfp4"}, torch_dtype=torch.bfloat16, **more
        ).cuda()
        codes = torch.randint(0, 256, (*lead, n, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.randint(118, 124, (*lead, n, k // 32), dtype=torch.uint8, device="cuda")
        made.load_from_tensors({"weight": codes, "weight_scale": scales})
        made.transform()
        return made

    for n, k in ((2 * INNER, HIDDEN), (HIDDEN, INNER)):
        layers = [layer(n, k) for _ in range(8)]
        for rows in (1, 8, 64, 256, 1024, 4096):
            x = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
            try:
                us = graph_us(lambda: [one(x) for one in layers], len(layers))
                line("humming mxfp4", f"{n}x{k}", rows, us, n * k * 17 / 32, 2.0 * rows * n * k)
            except Exception as error:
                line("humming mxfp4", f"{n}x{k}", rows, error=error)

    n, k, tile = 2 * INNER, HIDDEN, 16
    grouped = layer(n, k, EXPERTS)
    for rows in (1, 8):
        x = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
        ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(rows)]).flatten()
        order, tiles = [], []
        for expert in ids.unique().tolist():
            mine = (ids == expert).nonzero().flatten().tolist()
            mine += [rows * TOP_K] * (-len(mine) % tile)
            order += mine
            tiles += [expert] * (len(mine) // tile)
        lists = [torch.tensor(v, dtype=torch.int32, device="cuda") for v in (order, tiles, [len(order)])]
        try:
            us = graph_us(
                lambda: grouped(
                    x,
                    sorted_ids=lists[0],
                    expert_ids=lists[1],
                    num_tokens_padded=lists[2],
                    top_k=TOP_K,
                    compute_config={"gemm_type": "indexed"},
                ),
                1,
            )
            distinct = len(set(tiles))
            line("humming mxfp4", "experts gate+up", rows, us, distinct * n * k * 17 / 32, 2.0 * rows * TOP_K * n * k)
        except Exception as error:
            line("humming mxfp4", "experts gate+up", rows, error=error)


def flash_mla():
    """The sparse attention of FlashMLA's Hopper kernels: 128 window and 512 chosen keys, 64 heads of 512."""
    import flash_mla as peer

    flops_a_row = 64 * 640 * 1024 * 2.0
    for rows in (132, 528, 4096):
        q = torch.randn(rows, 64, 512, dtype=torch.bfloat16, device="cuda")
        kv = torch.randn(16384, 1, 512, dtype=torch.bfloat16, device="cuda")
        ids = torch.randint(0, 16384, (rows, 1, 640), dtype=torch.int32, device="cuda")
        try:
            us = graph_us(lambda: peer.flash_mla_sparse_fwd(q, kv, ids, 512**-0.5, use_legacy=True), 1)
            line("flash_mla bf16 keys", "prefill 640 keys", rows, us, rows * 640 * 1024, rows * flops_a_row)
        except Exception as error:
            line("flash_mla bf16 keys", "prefill 640 keys", rows, error=error)
    blocks = 1024
    window = torch.randint(0, 100, (blocks, 64, 1, 584), dtype=torch.uint8, device="cuda")
    chosen = torch.randint(0, 100, (blocks, 64, 1, 584), dtype=torch.uint8, device="cuda")
    for sequences, rows in ((1, 1), (16, 1), (132, 1), (512, 1), (64, 6)):
        q = torch.randn(sequences, rows, 64, 512, dtype=torch.bfloat16, device="cuda")
        ids = [torch.randint(0, blocks * 64, (sequences, rows, n), dtype=torch.int32, device="cuda") for n in (128, 512)]
        shape = f"decode {sequences} sequences x {rows}, 128 + 512 keys of 584 B"
        try:
            plan, _ = peer.get_mla_metadata()

            def run(q=q, plan=plan, ids=ids):
                peer.flash_mla_with_kvcache(
                    q, window, None, None, 512, plan, None, 512**-0.5, False, True,
                    ids[0], None, chosen, ids[1], use_legacy=True,
                )  # fmt: skip

            total = sequences * rows
            line("flash_mla fp8 keys", shape, total, graph_us(run, 1), total * 640 * 584, total * flops_a_row)
        except Exception as error:
            line("flash_mla fp8 keys", shape, sequences * rows, error=error)


def top_k():
    """torch.topk of 512 of bf16 scores."""
    for rows, length in ((1, 131072), (64, 65536)):
        scores = torch.randn(rows, length, device="cuda").to(torch.bfloat16)
        us = graph_us(lambda: torch.topk(scores, 512, dim=1, sorted=False), 1)
        line("torch.topk", f"512 of {length}", rows, us, 2.0 * rows * length)


def main():
    peers = {"cublas": cublas, "humming": humming, "flash_mla": flash_mla, "top_k": top_k}
    for name in sys.argv[1:] or peers:
        try:
            peers[name]()
        except Exception as error:
            line(name, "all", 0, error=error)


if __name__ == "__main__":
    main()
