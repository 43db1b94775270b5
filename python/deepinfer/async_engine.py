"""AsyncEngine: requests that come and go, in a program on asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native
from ._core import Core, TokenIds, raise_if_failed
from ._native import RequestOutput
from .chat import ChatOutput, Message
from .errors import InvalidArgument
from .options import EngineOptions
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

# Longer texts are encoded apart from the event loop.
_LONG_TEXT = 1 << 15


class _Courier:
    """Brings news from the engine to the tasks of one event loop, many at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.mailbox = _native.Mailbox(whole=False)
        self.queues: dict[str, asyncio.Queue[RequestOutput]] = {}
        self._loop = loop
        loop.add_reader(self.mailbox.fileno(), self._deliver)

    def _deliver(self) -> None:
        for output in self.mailbox.take():
            queue = self.queues.get(output.request_id)
            if queue is not None:
                queue.put_nowait(output)

    def stop(self) -> None:
        self._deliver()
        self._loop.remove_reader(self.mailbox.fileno())


class AsyncEngine:
    """A model that serves tasks. `await AsyncEngine.open(...)` loads it without blocking the loop.

    The arguments are those of `LLM`. One engine may serve several event loops.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        *,
        add_bos_token: bool = True,
        **options: Unpack[EngineOptions],
    ) -> None:
        engine_options = dict(options)
        engine_options.pop("disable_log_stats", None)
        self._core = Core(model, tokenizer, add_bos_token, engine_options, {})
        self._couriers: dict[asyncio.AbstractEventLoop, _Courier] = {}
        self._live: set[str] = set()

    @classmethod
    async def open(
        cls,
        model: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        *,
        add_bos_token: bool = True,
        **options: Unpack[EngineOptions],
    ) -> Self:
        """Loads a model while the loop goes on."""
        return await asyncio.to_thread(
            lambda: cls(model, tokenizer, add_bos_token=add_bos_token, **options)
        )

    async def generate(
        self,
        prompt: str | None = None,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        prompt_token_ids: TokenIds | None = None,
        user: str = "",
        priority: int = 0,
        timeout: float = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Completes one prompt and yields what is new as soon as it is there.

        Cancelling the task, or closing the generator, ends the request; so does `abort`, whereupon
        a last output says "abort". `deepinfer.gather` joins the outputs to one.

        Args:
            request_id: of one's own choice; must not be that of a request which still runs.
            user: users share the engine fairly.
            priority: -100 to 100, higher goes first.
            timeout: seconds until the last token; 0 for none.

        Raises InvalidArgument, Busy when the queue is full, RequestFailed behind the last output.
        """

        def make() -> _native.Request:
            return self._core.request(
                prompt,
                prompt_token_ids,
                sampling_params,
                request_id,
                user=user,
                priority=priority,
                timeout=timeout,
            )

        is_long = prompt is not None and len(prompt) > _LONG_TEXT
        request = await asyncio.to_thread(make) if is_long else make()
        if request.id in self._live:
            raise InvalidArgument(
                f"request_id {request.id!r} is that of a request which still runs"
            )
        courier = self._courier()
        queue: asyncio.Queue[RequestOutput] = asyncio.Queue()
        courier.queues[request.id] = queue
        self._live.add(request.id)
        finished = False
        try:
            self._core.engine.submit(request, courier.mailbox)
            while not finished:
                output = await queue.get()
                finished = output.finished
                self._core.raise_if_refused(output)
                yield output
                raise_if_failed([output])
        finally:
            del courier.queues[request.id]
            self._live.discard(request.id)
            if not finished:
                self._core.engine.abort(request.id)

    async def complete(
        self,
        prompt: str | None = None,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        prompt_token_ids: TokenIds | None = None,
        user: str = "",
        priority: int = 0,
        timeout: float = 0,
    ) -> RequestOutput:
        """As `generate`, but returns everything at the end."""
        stream = self.generate(
            prompt,
            sampling_params,
            request_id,
            prompt_token_ids=prompt_token_ids,
            user=user,
            priority=priority,
            timeout=timeout,
        )
        return _native.gather([output async for output in stream])

    async def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        thinking: bool | int | str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_format: str = "v4.1",
    ) -> ChatOutput:
        """Answers a conversation, as `LLM.chat` does."""
        if sampling_params is None:
            sampling_params = SamplingParams(max_tokens=self._core.facts["context"])
        ids = self._core.encode_chat(messages, thinking, tools, chat_format)
        output = await self.complete(None, sampling_params, prompt_token_ids=ids)
        return self._core.parse_chat(output, messages, thinking, tools)

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | int | str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_format: str = "v4.1",
    ) -> list[int]:
        """The prompt that `chat` would use."""
        return self._core.encode_chat(messages, thinking, tools, chat_format)

    def abort(self, request_id: str) -> None:
        """Ends a request soon; its generator yields a last output that says "abort"."""
        self._core.engine.abort(request_id)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._core.tokenizer

    async def stats(self) -> dict[str, Any]:
        """What the engine did lately and since its start; docs/metrics.md has the fields."""
        return await asyncio.to_thread(self._core.engine.stats)

    async def trace(self, path: str | os.PathLike[str], num_steps: int = 100) -> None:
        """Records the next steps to `path`, a Chrome trace that Perfetto opens."""
        await asyncio.to_thread(self._core.engine.trace, os.fspath(path), num_steps)

    @property
    def engine_options(self) -> dict[str, Any]:
        """The options in force."""
        return dict(self._core.facts["options"])

    @property
    def context(self) -> int:
        """Tokens that prompt and output may have together."""
        return int(self._core.facts["context"])

    async def close(self) -> None:
        """Ends what runs within the time of a step and frees the model. May be called again.

        Generators that still run yield a last output that says "abort".
        """
        await asyncio.to_thread(self._core.close)
        for loop, courier in list(self._couriers.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(courier.stop)
        self._couriers.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _courier(self) -> _Courier:
        loop = asyncio.get_running_loop()
        if loop not in self._couriers:
            for old in [old for old in self._couriers if old.is_closed()]:
                del self._couriers[old]
            self._couriers[loop] = _Courier(loop)
        return self._couriers[loop]
