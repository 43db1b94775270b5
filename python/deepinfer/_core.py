"""Core: an open engine and how requests are made for it; what LLM and AsyncEngine share."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy
from numpy.typing import NDArray

from . import _native, options
from .chat import ChatOutput, Message, conversation
from .errors import Busy, Error, InvalidArgument, RequestFailed, Unsupported
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

# One prompt's ids.
TokenIds: TypeAlias = Sequence[int] | NDArray[numpy.integer[Any]]

logger = logging.getLogger("deepinfer")

_open_cores: weakref.WeakSet[Core] = weakref.WeakSet()


class Core:
    """Owns one engine. Any thread may use it."""

    def __init__(
        self,
        model: str | os.PathLike[str] | None,
        tokenizer: str | os.PathLike[str] | None,
        add_bos_token: bool,
        engine_options: Mapping[str, Any],
        defaults: Mapping[str, Any],
    ) -> None:
        values = options.ours(engine_options)
        if model is not None:
            values["model"] = os.fspath(model)
        if tokenizer is not None and (
            model is None or os.path.realpath(tokenizer) != os.path.realpath(model)
        ):
            raise Unsupported("tokenizer: only the one in the model's folder can be used")
        self.engine = _native.Engine(values, {**defaults})
        self.closed = False
        self.facts = self.engine.describe()
        for note in self.facts["notes"]:
            logger.info("%s", note)
        self.tokenizer = Tokenizer(self.engine)
        self._add_bos_token = add_bos_token
        self._ids = itertools.count()
        _open_cores.add(self)

    def close(self) -> None:
        """Ends everything within the time of a step, and gives the memory back."""
        self.closed = True
        self.engine.close()

    def encode(self, prompt: str) -> list[int]:
        """A text prompt's ids, with the token that opens a text."""
        if not isinstance(prompt, str):
            raise InvalidArgument(f"a prompt is a str, not {type(prompt).__name__}")
        return self.tokenizer.encode(prompt, self._add_bos_token)

    def request(
        self,
        prompt: str | None,
        prompt_token_ids: TokenIds | None,
        params: SamplingParams | None,
        request_id: str | None = None,
        **details: Any,
    ) -> _native.Request:
        """A request that the engine will take. Raises what is wrong with it."""
        if prompt_token_ids is None:
            if prompt is None:
                raise InvalidArgument("give a prompt or prompt_token_ids")
            prompt_token_ids = self.encode(prompt)
        if request_id is None:
            request_id = f"{id(self):x}-{next(self._ids)}"
        values = (params if params is not None else SamplingParams()).to_dict()
        request = _native.Request(request_id, prompt_token_ids, values, **details)
        self.engine.check(request)
        return request

    def encode_chat(
        self,
        messages: Sequence[Message],
        thinking: bool | int | str | None,
        tools: Sequence[Mapping[str, Any]] | None,
        chat_format: str,
    ) -> list[int]:
        """The prompt of a conversation."""
        neutral = conversation(messages, thinking, tools)
        return self.engine.encode_conversation(neutral, chat_format)

    def parse_chat(
        self,
        output: _native.RequestOutput,
        messages: Sequence[Message],
        thinking: bool | int | str | None,
        tools: Sequence[Mapping[str, Any]] | None,
    ) -> ChatOutput:
        """What the model wrote behind that prompt."""
        neutral = conversation(messages, thinking, tools)
        reasoning, content, calls = self.engine.parse_answer(neutral, output.text)
        return ChatOutput(content, reasoning, calls, output)

    def raise_if_refused(self, output: _native.RequestOutput) -> None:
        """A queue that is full, or an engine that was closed meanwhile."""
        for choice in output.outputs:
            if choice.finish_reason == "refused":
                raise Unsupported("the engine is closed") if self.closed else Busy(choice.message)


def raise_if_failed(outputs: list[_native.RequestOutput]) -> None:
    """For calls that have no place to tell a failure in."""
    for index, output in enumerate(outputs):
        for choice in output.outputs:
            if choice.finish_reason in ("failed", "refused"):
                raise RequestFailed(f"prompt {index}: {choice.message}", outputs)


def naming_prompt(error: Error, index: int) -> Error:
    """The same error, saying which prompt is wrong."""
    return type(error)(f"prompt {index}: {error}")


def _close_all() -> None:
    for core in list(_open_cores):
        core.close()


def _abandon_all() -> None:
    for core in list(_open_cores):
        core.closed = True
        core.engine.abandon()


# Threads of an engine neither outlive the interpreter nor follow a fork.
atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
