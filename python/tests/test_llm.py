"""LLM: the same texts whatever way they are asked for, and errors that leave nothing behind."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import numpy
import pytest

from deepinfer import (
    LLM,
    Busy,
    EngineOptions,
    InvalidArgument,
    NotFound,
    RequestFailed,
    RequestOutput,
    SamplingParams,
    Unsupported,
    gather,
)
from support import MODEL, PROMPTS, small_options

GREEDY = SamplingParams(temperature=0, max_tokens=12)
SEEDED = SamplingParams(temperature=0.9, top_p=0.95, seed=7, max_tokens=12)


def nothing_runs(llm: LLM) -> bool:
    """Whether all requests have gone; an abort acts with a step, which stats() waits for."""
    for _ in range(10_000):
        stats = llm.stats()
        if stats["num_running"] == 0 and stats["num_waiting"] == 0 and stats["blocks_used"] == 0:
            return True
    return False


# ---- The same text ----


def test_text_is_that_of_the_program(llm: LLM, program: pathlib.Path) -> None:
    prompt = "<｜begin▁of▁sentence｜>" + PROMPTS[0]
    command = [str(program), "generate", "--raw", "--json", "--model", str(MODEL)]
    for params in (GREEDY, SEEDED):
        flags = ["-n", "12", "--seed", "7", "--temperature", str(params.temperature)]
        flags += ["--top-p", str(params.top_p), prompt]
        run = subprocess.run([*command, *flags], check=True, capture_output=True)
        expected = json.loads(run.stdout)
        (output,) = llm.generate_outputs(PROMPTS[0], params, use_tqdm=False)
        assert output.text == expected["text"]
        assert output.token_ids[: len(expected["ids"])] == expected["ids"]


def test_a_prompt_in_a_batch_has_the_text_it_has_alone(llm: LLM) -> None:
    for params in (GREEDY, SEEDED):
        batch = llm.generate(PROMPTS, params, use_tqdm=False)
        assert batch == [llm.generate(p, params, use_tqdm=False)[0] for p in PROMPTS]
        assert batch[::-1] == llm.generate(PROMPTS[::-1], params, use_tqdm=False)


def test_a_stream_adds_up_to_what_generate_returns(llm: LLM) -> None:
    params = SamplingParams(seed=3, max_tokens=12, top_logprobs=2, prompt_logprobs=True)
    pieces = list(llm.stream(PROMPTS[1], params))
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    (whole,) = llm.generate_outputs(PROMPTS[1], params, use_tqdm=False)
    assert "".join(piece.text for piece in pieces) == whole.text
    joined = gather(pieces)
    assert joined.token_ids == whole.token_ids
    assert joined.finish_reason == whole.finish_reason == "length"
    assert joined.prompt_logprobs == whole.prompt_logprobs
    assert joined.outputs[0].logprobs == whole.outputs[0].logprobs
    assert joined.outputs[0].top_logprobs == whole.outputs[0].top_logprobs


def test_token_ids_win_over_text(llm: LLM) -> None:
    ids = llm.get_tokenizer().encode(PROMPTS[0], add_bos_token=True)
    expected = llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)
    assert llm.generate(None, GREEDY, ids, use_tqdm=False) == expected
    assert llm.generate("another", GREEDY, [ids], use_tqdm=False) == expected
    assert llm.generate(None, GREEDY, numpy.array(ids), use_tqdm=False) == expected


def test_the_token_that_opens_a_text_is_added_once(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    bos = tokenizer.decode([tokenizer.bos_token_id])
    with_bos = llm.generate_outputs([PROMPTS[0], bos + PROMPTS[0]], GREEDY, use_tqdm=False)
    assert with_bos[0].num_prompt_tokens == with_bos[1].num_prompt_tokens
    with LLM(MODEL, add_bos_token=False, **small_options()) as plain:
        (output,) = plain.generate_outputs(PROMPTS[0], GREEDY, use_tqdm=False)
    assert output.num_prompt_tokens == with_bos[0].num_prompt_tokens - 1


def test_shared_parameters_without_a_seed_give_each_prompt_its_own() -> None:
    def texts() -> list[str]:
        with LLM(MODEL, seed=5, **small_options()) as llm:
            return llm.generate([PROMPTS[0]] * 4, SamplingParams(max_tokens=12), use_tqdm=False)

    first = texts()
    assert len(set(first)) > 1
    assert texts() == first


def test_more_prompts_than_the_engine_would_queue_are_all_answered(llm: LLM) -> None:
    count = 300
    params = [SamplingParams(ignore_eos=True, max_tokens=1 + i % 3) for i in range(count)]
    outputs = llm.generate_outputs(None, params, [[5 + i] for i in range(count)], use_tqdm=False)
    assert [len(output.token_ids) for output in outputs] == [1 + i % 3 for i in range(count)]


# ---- What is told ----


def test_arrays_look_at_the_memory_of_their_output(llm: LLM) -> None:
    params = SamplingParams(seed=1, max_tokens=6, top_logprobs=3, prompt_logprobs=True)
    (output,) = llm.generate_outputs(PROMPTS[0], params, use_tqdm=False)
    choice = output.outputs[0]
    assert choice.token_ids_array.tolist() == choice.token_ids
    assert choice.logprobs_array is not None and choice.logprobs_array.tolist() == choice.logprobs
    assert choice.top_token_ids_array is not None and choice.top_token_ids_array.shape == (6, 3)
    assert choice.top_logprobs_array is not None and choice.top_logprobs is not None
    assert choice.top_logprobs_array.tolist() == [
        [p for _, p in row] for row in choice.top_logprobs
    ]
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == output.num_prompt_tokens - 1

    first, second = choice.token_ids_array, choice.token_ids_array
    assert numpy.shares_memory(first, second)
    assert not first.flags.writeable
    del output, choice
    assert first.tolist() == second.tolist()


def test_what_was_not_asked_for_is_none(llm: LLM) -> None:
    (output,) = llm.generate_outputs(PROMPTS[0], GREEDY, use_tqdm=False)
    choice = output.outputs[0]
    assert choice.logprobs is None and choice.logprobs_array is None
    assert choice.top_logprobs is None and choice.top_token_ids_array is None
    assert output.prompt_logprobs is None


def test_several_choices_differ_and_the_first_is_that_of_a_lone_one(llm: LLM) -> None:
    several = SamplingParams(seed=7, n=3, max_tokens=12)
    (output,) = llm.generate_outputs(PROMPTS[0], several, use_tqdm=False)
    assert [choice.index for choice in output.outputs] == [0, 1, 2]
    assert len({choice.text for choice in output.outputs}) > 1
    one = SamplingParams(seed=7, max_tokens=12)
    assert output.outputs[0].text == llm.generate(PROMPTS[0], one, use_tqdm=False)[0]
    with pytest.raises(InvalidArgument, match="several"):
        _ = output.text
    with pytest.raises(InvalidArgument, match="generate_outputs"):
        llm.generate(PROMPTS[0], several)


def test_a_stop_string_ends_the_text_before_it(llm: LLM) -> None:
    (full,) = llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)
    stop = full[4:8]
    params = SamplingParams(temperature=0, max_tokens=12, stop=stop)
    (output,) = llm.generate_outputs(PROMPTS[0], params, use_tqdm=False)
    assert output.text == full[: full.index(stop)]
    assert output.finish_reason == "stop_string"
    assert output.outputs[0].message == stop


def test_without_decoding_generate_returns_outputs() -> None:
    with LLM(MODEL, decode_sequence=False, **small_options()) as llm:
        (output,) = llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)
    assert isinstance(output, RequestOutput)


def test_a_conversation_is_answered(llm: LLM) -> None:
    question = {"role": "user", "content": "What is 7 + 5?"}
    params = SamplingParams(temperature=0, max_tokens=200)
    answer = llm.chat([question], params, thinking=False)
    assert answer.content and answer.reasoning == ""
    with_thoughts = llm.chat([question], params, thinking="low")
    assert with_thoughts.reasoning
    ids = llm.encode_chat([question], thinking=False)
    assert llm.generate(None, params, ids, use_tqdm=False)[0].startswith(answer.content)
    again = llm.chat([question, answer.message(), question], params, thinking=False)
    assert again.output.num_prompt_tokens > answer.output.num_prompt_tokens


def test_statistics_and_traces(llm: LLM, tmp_path: pathlib.Path) -> None:
    before = llm.stats()["total_requests"]
    trace = tmp_path / "trace.json"
    llm.trace(trace, 3)
    llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)
    assert llm.stats()["total_requests"] == before + 1
    assert json.loads(trace.read_text())["traceEvents"]


# ---- Errors ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give prompts"),
        ({"prompts": ["a", "b"], "prompt_token_ids": [[5]]}, "2 prompts, but 1"),
        ({"prompts": ["a", "b"], "sampling_params": [GREEDY]}, "2 prompts, but 1"),
        ({"prompt_token_ids": [[5], []]}, "prompt 1: the prompt has no tokens"),
        ({"prompt_token_ids": [[5], [5, -1]]}, "prompt 1: prompt token 1 is -1"),
        ({"prompt_token_ids": [[5], [1 << 40]]}, "prompt 1: token 0"),
        ({"prompt_token_ids": [[5], [5] * 512]}, "prompt 1: .* context of 512"),
        ({"prompts": ["a", None]}, "prompt 1"),
        (
            {
                "prompts": ["a", "b"],
                "sampling_params": [GREEDY, SamplingParams(stop_token_ids=[10**6])],
            },
            "prompt 1: stop_token_ids",
        ),
    ],
)
def test_a_bad_prompt_is_named_and_nothing_is_queued(
    llm: LLM, arguments: dict[str, object], message: str
) -> None:
    before = llm.stats()["total_requests"]
    with pytest.raises(ValueError, match=message):
        llm.generate(**arguments, use_tqdm=False)  # type: ignore[arg-type]
    assert llm.stats()["total_requests"] == before


def test_parameters_changed_after_they_were_made_are_checked_again(llm: LLM) -> None:
    params = SamplingParams()
    params.top_p = 2
    with pytest.raises(InvalidArgument, match="prompt 0: top_p"):
        llm.generate(PROMPTS[0], params)


def test_an_interrupt_ends_all_requests(llm: LLM) -> None:
    # A shell starts its background jobs with the signal ignored, and Python leaves that so.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while llm.stats()["num_running"] == 0:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS * 20, SamplingParams(max_tokens=400, ignore_eos=True), use_tqdm=False)
    thread.join()
    assert nothing_runs(llm)
    assert llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)


def test_leaving_a_stream_ends_its_request(llm: LLM) -> None:
    for _ in llm.stream(PROMPTS[0], SamplingParams(max_tokens=400, ignore_eos=True)):
        break
    assert nothing_runs(llm)


def test_a_full_queue_refuses_in_place() -> None:
    options = small_options(max_num_seqs=1, max_queued_requests=1, max_queued_tokens=10**6)
    with LLM(MODEL, decode_sequence=False, **options) as llm:
        params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
        outputs = llm.generate(PROMPTS * 3, params, use_tqdm=False)
        reasons = {output.finish_reason for output in outputs}
        assert "refused" in reasons and "length" in reasons
        refused = next(output for output in outputs if output.finish_reason == "refused")
        assert "max_queued_requests" in refused.outputs[0].message
    with LLM(MODEL, **options) as llm:
        with pytest.raises(RequestFailed) as failure:
            llm.generate(PROMPTS * 3, params, use_tqdm=False)
        assert len(failure.value.outputs) == len(PROMPTS * 3)
        assert issubclass(Busy, Exception)


def test_a_model_must_be_named_here_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPINFER_MODEL", raising=False)
    with pytest.raises(NotFound, match="DEEPINFER_MODEL"):
        LLM()
    with pytest.raises(NotFound, match="no such folder"):
        LLM("no/such/folder")
    monkeypatch.setenv("DEEPINFER_MODEL", str(MODEL))
    monkeypatch.setenv("DEEPINFER_CHUNK", "7")
    monkeypatch.setenv("DEEPINFER_CONTEXT", "100")
    with LLM(**small_options()) as llm:
        assert llm.engine_options["chunk"] == 7
        assert llm.context == 512
    monkeypatch.setenv("DEEPINFER_CHUNKS", "7")
    with pytest.raises(InvalidArgument, match="DEEPINFER_CHUNK"):
        LLM()


# ---- Options of the original ----


def test_options_of_the_original_are_understood() -> None:
    with LLM(
        MODEL,
        MODEL,
        trust_remote_code=True,
        chunked_prefill=True,
        expert_parallel_size=1,
        tokens_per_block=128,
        revision=None,
        seed=3,
        max_model_len=300,
        max_num_batched_tokens=None,
        gpu_memory_utilization=0.5,
    ) as llm:
        assert llm.context == 300
        assert llm.engine_options["memory_utilization"] == 0.5
        assert llm.engine_options["seed"] == 3
        assert llm.engine_options["max_num_batched_tokens"] == 512


def test_every_option_of_the_engine_has_a_type(llm: LLM) -> None:
    assert set(llm.engine_options) - {"model"} <= set(EngineOptions.__annotations__)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"expert_parallel_size": 2}, Unsupported, "expert_parallel_size=2: an engine"),
        ({"tokens_per_block": 64}, Unsupported, "128"),
        ({"stop_preempted_request": True}, Unsupported, "go on"),
        ({"tokenizer": "elsewhere"}, Unsupported, "tokenizer"),
        ({"temprature": 1}, InvalidArgument, "temprature"),
        ({"context": 64, "max_model_len": 64}, InvalidArgument, "same option"),
        ({"max_num_seqs": 0}, InvalidArgument, "max_num_seqs"),
        ({"max_num_seqs": "many"}, InvalidArgument, "max_num_seqs"),
        ({"context": 1 << 62}, InvalidArgument, "context"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused(
    options: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        LLM(MODEL, **options)  # type: ignore[arg-type]


# ---- Threads ----


def test_other_threads_run_while_one_waits(llm: LLM) -> None:
    done = threading.Event()
    count = 0

    def work() -> None:
        nonlocal count
        while not done.is_set():
            count += 1
            time.sleep(0)

    thread = threading.Thread(target=work)
    thread.start()
    begin = time.perf_counter()
    llm.generate(PROMPTS, SamplingParams(max_tokens=40, ignore_eos=True), use_tqdm=False)
    seconds = time.perf_counter() - begin
    done.set()
    thread.join()
    # A thread that was held up for the whole call would have counted once or twice.
    assert count > 100, f"{count} rounds in {seconds} s"


def test_threads_share_an_engine(llm: LLM) -> None:
    expected = [llm.generate(prompt, SEEDED, use_tqdm=False) for prompt in PROMPTS]
    found: dict[int, list[str]] = {}

    def work(index: int) -> None:
        found[index] = llm.generate(PROMPTS[index], SEEDED, use_tqdm=False)

    threads = [threading.Thread(target=work, args=[index]) for index in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[index] for index in range(len(PROMPTS))] == expected
