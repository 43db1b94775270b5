"""Engine options: their types, and what becomes of the options of the original engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from .errors import InvalidArgument, Unsupported


class EngineOptions(TypedDict, total=False):
    """Options of `LLM` and `AsyncEngine`; docs/options.md has units, ranges and reasons."""

    backend: str  # "cpu", or "ref": the slow, literal oracle
    isa: str  # "auto", "avx2", "avx512", "vnni", "amx"
    cuda_arithmetic: str  # "fast", or "canonical": the numbers of cpu and ref on a GPU
    threads: int  # 0: one for each processor
    context: int  # tokens of prompt and output; 0: the model's, at most 8192
    max_num_seqs: int  # sequences that run at once
    max_num_batched_tokens: int | None  # rows of one step
    chunk: int  # prompt rows of one sequence in a step; 0: no such limit
    num_blocks: int  # cache blocks of 128 tokens; 0: by need and memory
    memory_utilization: float  # share of the available memory that may be planned
    engram_memory: str  # "auto", "device", "host": where a GPU has Engram's tables
    async_scheduling: bool  # plan a step while another runs; the text is the same
    max_step_ms: float  # target for steps with decode rows; 0: none
    patience_seconds: float  # a request without deadline is due this long after arrival
    max_queued_requests: int  # more are refused; `LLM` queues all it is given
    max_queued_tokens: int  # as above, prompt tokens
    drafts: str  # "off", "adaptive", or how many a sequence verifies: "1" … "5"
    verification: str  # what keeps a draft: "auto", "exact_seed", "block"
    draft_costs: str  # folder where what steps cost is kept; "": the user's cache; "none"
    replay: str  # "off", "compact", "mask": approximation of long prompts
    replay_keep: int  # last prompt rows computed in full
    seed: int  # requests without a seed draw theirs from this one
    peak_flops: float  # of the machine, for the utilisation in stats()
    check_integrity: bool  # check the ledger of memory after each step
    banned_tokens: str  # ids that no request draws, such as "0..3,7"
    record: str  # log parameters, lengths, hashes and times of all requests into this file
    record_content: bool  # log prompts and outputs, too

    # Names of the original engine.
    max_model_len: int | None  # context
    gpu_memory_utilization: float  # memory_utilization
    disable_log_stats: bool
    trust_remote_code: bool
    revision: str | None
    tokenizer_revision: str | None
    served_model_name: str
    load_format: str
    engine_type: str
    data_parallel_size: int
    context_parallel_size: int
    expert_parallel_size: int
    engram_parallel_size: int
    engine_rank: int
    engine_group_rank: int
    chunked_prefill: bool
    stop_preempted_request: bool
    ignore_len: int
    tokens_per_block: int
    lookahead_tokens: int
    offline_inference: bool


# Names of the original and ours.
_RENAMED = {"max_model_len": "context", "gpu_memory_utilization": "memory_utilization"}

# Options of the original that have nothing to decide here, whatever their value.
_WITHOUT_EFFECT = {
    "trust_remote_code",  # no code of a model is ever run
    "served_model_name",  # a name for a server's clients
    "chunked_prefill",  # prompts always go in chunks; the text does not depend on it
    "ignore_len",
    "offline_inference",
}

# Options of the original that only these values can be honoured of, and why.
_ONLY: dict[str, tuple[tuple[object, ...], str]] = {
    "revision": ((None,), "a model is a folder, which has one revision"),
    "tokenizer_revision": ((None,), "the tokenizer is that of the model's folder"),
    "load_format": (("auto",), "weights are read from the model's folder"),
    "engine_type": (("NORMAL",), "one engine does prefill and decode"),
    "data_parallel_size": ((0, 1), "an engine is one process"),
    "context_parallel_size": ((1,), "an engine is one process"),
    "expert_parallel_size": ((1,), "an engine is one process"),
    "engram_parallel_size": ((0, 1), "an engine is one process"),
    "engine_rank": ((0,), "an engine is one process"),
    "engine_group_rank": ((0,), "an engine is one process"),
    "stop_preempted_request": ((False,), "preempted requests always go on, with the same text"),
    "tokens_per_block": ((-1, 128), "cache blocks have 128 tokens"),
    "lookahead_tokens": ((0,), "there is no speculative decoding"),
}


def ours(options: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's own options. Raises InvalidArgument or Unsupported naming what is wrong."""
    resolved: dict[str, Any] = {}
    for name, value in options.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name in _ONLY:
            allowed, reason = _ONLY[name]
            if value not in allowed:
                wanted = " or ".join(repr(v) for v in allowed)
                raise Unsupported(f"{name}={value!r}: {reason}; only {wanted} can be honoured")
            continue
        renamed = _RENAMED.get(name, name)
        if renamed in resolved:
            raise InvalidArgument(f"{name} and {renamed} are the same option; give one")
        if value is not None:
            resolved[renamed] = value
    return resolved
