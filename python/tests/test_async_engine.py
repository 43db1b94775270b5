"""AsyncEngine: the texts of LLM, and requests that end when their task does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from deepinfer import (
    LLM,
    AsyncEngine,
    Busy,
    InvalidArgument,
    SamplingParams,
    Unsupported,
    gather,
)
from support import MODEL, PROMPTS, small_options

T = TypeVar("T")
LONG = SamplingParams(max_tokens=400, ignore_eos=True)


def serve(work: Callable[[AsyncEngine], Awaitable[T]], **options: object) -> T:
    """What `work` returns, given an engine of its own."""

    async def main() -> T:
        async with await AsyncEngine.open(MODEL, **small_options(**options)) as engine:
            return await asyncio.wait_for(work(engine), 300)

    return asyncio.run(main())


async def nothing_runs(engine: AsyncEngine) -> bool:
    """Whether all requests have gone; an abort acts with a step, which stats() waits for."""
    for _ in range(10_000):
        stats = await engine.stats()
        if stats["num_running"] == 0 and stats["num_waiting"] == 0 and stats["blocks_used"] == 0:
            return True
    return False


def test_many_tasks_get_the_texts_of_a_batch(llm: LLM) -> None:
    params = [SamplingParams(seed=i, max_tokens=8) for i in range(64)]
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(64)]

    async def work(engine: AsyncEngine) -> list[str]:
        tasks = [engine.complete(*pair) for pair in zip(prompts, params, strict=True)]
        return [output.text for output in await asyncio.gather(*tasks)]

    assert serve(work) == llm.generate(prompts, params, use_tqdm=False)


def test_pieces_add_up_to_the_whole() -> None:
    async def work(engine: AsyncEngine) -> None:
        params = SamplingParams(seed=1, max_tokens=10, n=2, logprobs=True)
        pieces = [output async for output in engine.generate(PROMPTS[0], params, user="ann")]
        assert len(pieces) > 1 and pieces[-1].finished
        whole = await engine.complete(PROMPTS[0], params, priority=5, timeout=100)
        joined = gather(pieces)
        for one, other in zip(joined.outputs, whole.outputs, strict=True):
            assert one.text == other.text
            assert one.logprobs == other.logprobs

    serve(work)


def test_an_abort_is_told_to_who_waits() -> None:
    async def work(engine: AsyncEngine) -> None:
        reasons = []
        async for output in engine.generate(PROMPTS[0], LONG, "the one"):
            reasons.append(output.finish_reason)
            engine.abort("the one")
        assert reasons[-1] == "abort"
        assert len(reasons) < 400
        engine.abort("unknown")

    serve(work)


def test_a_cancelled_task_ends_its_request() -> None:
    async def work(engine: AsyncEngine) -> None:
        tasks = [asyncio.create_task(engine.complete(prompt, LONG)) for prompt in PROMPTS]
        async for _ in engine.generate(PROMPTS[0], SamplingParams(max_tokens=2, temperature=0)):
            pass
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert await nothing_runs(engine)
        assert (await engine.stats())["total_requests"] == len(PROMPTS) + 1

    serve(work)


def test_a_closed_generator_ends_its_request() -> None:
    async def work(engine: AsyncEngine) -> None:
        async with contextlib.aclosing(engine.generate(PROMPTS[0], LONG)) as stream:
            async for _ in stream:
                break
        assert await nothing_runs(engine)

    serve(work)


def test_bad_requests_raise_and_leave_nothing() -> None:
    async def work(engine: AsyncEngine) -> None:
        with pytest.raises(InvalidArgument, match="outside the vocabulary"):
            await engine.complete(prompt_token_ids=[10**6])
        with pytest.raises(InvalidArgument, match="give a prompt"):
            await engine.complete()
        with pytest.raises(InvalidArgument, match="priority"):
            await engine.complete("a", priority=1000)
        stream = engine.generate("a", LONG, "twice")
        await anext(stream)
        with pytest.raises(InvalidArgument, match="twice"):
            await engine.complete("a", LONG, "twice")
        await stream.aclose()
        assert await nothing_runs(engine)

    serve(work)


def test_a_full_queue_raises_busy() -> None:
    async def work(engine: AsyncEngine) -> None:
        tasks = [asyncio.create_task(engine.complete(prompt, LONG)) for prompt in PROMPTS]
        with pytest.raises(Busy, match="max_queued_requests"):
            await asyncio.gather(*tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    serve(work, max_num_seqs=1, max_queued_requests=2)


def test_the_loop_turns_while_the_engine_works() -> None:
    async def work(engine: AsyncEngine) -> None:
        params = SamplingParams(max_tokens=40, ignore_eos=True)
        task = asyncio.create_task(engine.complete(PROMPTS[0], params))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 400

    serve(work)


def test_a_long_text_is_encoded_apart_from_the_loop() -> None:
    async def work(engine: AsyncEngine) -> None:
        with pytest.raises(InvalidArgument, match="context"):
            await engine.complete("word " * 20000)

    serve(work)


def test_a_conversation_is_answered(llm: LLM) -> None:
    messages = [{"role": "user", "content": "What is 7 + 5?"}]
    params = SamplingParams(temperature=0, max_tokens=50)

    async def work(engine: AsyncEngine) -> str:
        return (await engine.chat(messages, params, thinking=False)).content

    assert serve(work) == llm.chat(messages, params, thinking=False).content


def test_closing_tells_who_waits_and_refuses_who_comes() -> None:
    async def main() -> None:
        engine = await AsyncEngine.open(MODEL, **small_options())
        tasks = [asyncio.create_task(engine.complete(prompt, LONG)) for prompt in PROMPTS]
        async for _ in engine.generate(PROMPTS[0], SamplingParams(max_tokens=1)):
            pass
        await engine.close()
        await engine.close()
        outputs = await asyncio.gather(*tasks)
        assert {output.finish_reason for output in outputs} == {"abort"}
        with pytest.raises(Unsupported, match="closed"):
            await engine.complete("a")
        engine.abort("whatever")

    asyncio.run(asyncio.wait_for(main(), 300))


def test_an_engine_outlives_its_loops() -> None:
    engine = AsyncEngine(MODEL, **small_options())
    params = SamplingParams(temperature=0, max_tokens=4)

    async def work() -> str:
        return (await engine.complete(PROMPTS[0], params)).text

    texts = {asyncio.run(work()) for _ in range(3)}
    assert len(texts) == 1
    assert len(engine._couriers) == 1
    asyncio.run(engine.close())
