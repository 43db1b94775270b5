"""LLM: many prompts at once, from a script."""

from __future__ import annotations

import numbers
import os
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native
from ._core import Core, TokenIds, logger, naming_prompt, raise_if_failed
from ._native import RequestOutput
from .chat import ChatOutput, Message
from .errors import Error, InvalidArgument, Unsupported
from .options import EngineOptions
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

# The caller holds all prompts of a batch anyway, so there is no queue to protect.
_DEFAULTS = {"max_queued_requests": 2**40, "max_queued_tokens": 2**40}


class LLM:
    """A model, ready for batches. Any number of threads may use one.

    Args:
        model: folder of the model; None takes it from the environment variable DEEPINFER_MODEL.
        tokenizer: None, or the model's folder again.
        decode_sequence: `generate` returns strings; otherwise `RequestOutput`s.
        add_bos_token: text prompts get the token that opens a text, unless they begin with it.
        options: of the engine, see `EngineOptions`; they overrule variables of the environment.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        *,
        decode_sequence: bool = True,
        add_bos_token: bool = True,
        **options: Unpack[EngineOptions],
    ) -> None:
        engine_options = dict(options)
        self._log_stats = not engine_options.pop("disable_log_stats", True)
        self._decode_sequence = decode_sequence
        self._core = Core(model, tokenizer, add_bos_token, engine_options, _DEFAULTS)

    def generate(
        self,
        prompts: str | Sequence[str] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        prompt_token_ids: TokenIds | Sequence[TokenIds] | None = None,
        use_tqdm: bool = True,
        multi_modal_data: None = None,
    ) -> list[Any]:
        """Completes each prompt; the results are in the order of the prompts.

        Token ids win over text. Parameters are one for all prompts or one for each. Everything is
        checked before anything runs: InvalidArgument names the first prompt that is wrong, and
        nothing stays behind.

        Returns strings with decode_sequence, otherwise what `generate_outputs` does. A string has
        no place for an error: RequestFailed is raised then, when all prompts are done, and holds
        the outputs of all.
        """
        if multi_modal_data is not None:
            raise Unsupported("multi_modal_data: this engine reads no images")
        if not self._decode_sequence:
            return self.generate_outputs(prompts, sampling_params, prompt_token_ids, use_tqdm)
        shared = (
            [sampling_params] if isinstance(sampling_params, SamplingParams) else sampling_params
        )
        if any(params.n > 1 for params in shared or ()):
            raise InvalidArgument("n > 1 makes several texts a prompt; call generate_outputs")
        outputs = self.generate_outputs(prompts, sampling_params, prompt_token_ids, use_tqdm)
        raise_if_failed(outputs)
        return [output.text for output in outputs]

    def generate_outputs(
        self,
        prompts: str | Sequence[str] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        prompt_token_ids: TokenIds | Sequence[TokenIds] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """As `generate`, with everything that is known of each request.

        A request that fails while it runs has finish_reason "failed" and a message in its place.
        """
        requests = self._requests(prompts, sampling_params, prompt_token_ids)
        with _progress(len(requests), use_tqdm) as advance:
            outputs = self._run(requests, advance)
        if self._log_stats:
            logger.info("%s", self._core.engine.stats_line())
        return outputs

    def stream(
        self,
        prompt: str | None = None,
        sampling_params: SamplingParams | None = None,
        *,
        prompt_token_ids: TokenIds | None = None,
    ) -> Iterator[RequestOutput]:
        """Completes one prompt and yields what is new as soon as it is there.

        Leaving the loop ends the request. `deepinfer.gather` joins the outputs to one.
        """
        return self._stream(self._core.request(prompt, prompt_token_ids, sampling_params))

    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        thinking: bool | int | str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_format: str = "v4.1",
    ) -> ChatOutput:
        """Answers a conversation.

        Args:
            messages: dicts with role (system, user, assistant, tool) and content.
            sampling_params: None draws plainly, up to the end of the context.
            thinking: False to answer at once; "low", "high", "xhigh", "max" or 1 to 100.
            tools: functions that may be called: name, description, parameters.
            chat_format: "v4.1" or "v4".
        """
        if sampling_params is None:
            sampling_params = SamplingParams(max_tokens=self._core.facts["context"])
        ids = self._core.encode_chat(messages, thinking, tools, chat_format)
        (output,) = self._run([self._core.request(None, ids, sampling_params)])
        raise_if_failed([output])
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

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._core.tokenizer

    def stats(self) -> dict[str, Any]:
        """What the engine did lately and since its start; docs/metrics.md has the fields."""
        return self._core.engine.stats()

    def trace(self, path: str | os.PathLike[str], num_steps: int = 100) -> None:
        """Records the next steps to `path`, a Chrome trace that Perfetto opens."""
        self._core.engine.trace(os.fspath(path), num_steps)

    @property
    def engine_options(self) -> dict[str, Any]:
        """The options in force."""
        return dict(self._core.facts["options"])

    @property
    def context(self) -> int:
        """Tokens that prompt and output may have together."""
        return int(self._core.facts["context"])

    def close(self) -> None:
        """Ends what runs within the time of a step and frees the model. May be called again."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _requests(
        self,
        prompts: str | Sequence[str] | None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        prompt_token_ids: TokenIds | Sequence[TokenIds] | None,
    ) -> list[_native.Request]:
        texts = [prompts] if isinstance(prompts, str) else prompts
        ids = _one_or_many(prompt_token_ids)
        if texts is None and ids is None:
            raise InvalidArgument("give prompts or prompt_token_ids")
        if texts is not None and ids is not None and len(texts) != len(ids):
            raise InvalidArgument(f"{len(texts)} prompts, but {len(ids)} prompt_token_ids")
        count = len(ids) if ids is not None else len(texts or ())
        params = _one_for_each(sampling_params, count)
        requests = []
        for index in range(count):
            text = texts[index] if texts is not None else None
            prompt_ids = ids[index] if ids is not None else None
            try:
                requests.append(self._core.request(text, prompt_ids, params[index]))
            except Error as error:
                raise naming_prompt(error, index) from None
        return requests

    def _run(
        self, requests: list[_native.Request], advance: Callable[[], object] = lambda: None
    ) -> list[RequestOutput]:
        """Runs requests to their ends. Whatever interrupts it, none of them goes on."""
        mailbox = _native.Mailbox(whole=True)
        waiting = {request.id: index for index, request in enumerate(requests)}
        outputs: dict[int, RequestOutput] = {}
        try:
            for request in requests:
                self._core.engine.submit(request, mailbox)
            while waiting:
                for output in _next_outputs(mailbox):
                    outputs[waiting.pop(output.request_id)] = output
                    advance()
        finally:
            for request_id in waiting:
                self._core.engine.abort(request_id)
        return [outputs[index] for index in range(len(requests))]

    def _stream(self, request: _native.Request) -> Iterator[RequestOutput]:
        mailbox = _native.Mailbox(whole=False)
        finished = False
        try:
            self._core.engine.submit(request, mailbox)
            while not finished:
                for output in _next_outputs(mailbox):
                    finished = output.finished
                    self._core.raise_if_refused(output)
                    yield output
                    raise_if_failed([output])
        finally:
            if not finished:
                self._core.engine.abort(request.id)


def _next_outputs(mailbox: _native.Mailbox) -> list[RequestOutput]:
    """Waits for outputs. Other threads run meanwhile, and Ctrl-C interrupts."""
    poll = select.poll()
    poll.register(mailbox.fileno(), select.POLLIN)
    poll.poll()
    return mailbox.take()


def _one_or_many(ids: TokenIds | Sequence[TokenIds] | None) -> Any:
    """A list of prompts, also when it is one prompt."""
    is_one = ids is not None and len(ids) > 0 and isinstance(ids[0], numbers.Integral)
    return [ids] if is_one else ids


def _one_for_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> Sequence[SamplingParams | None]:
    if params is None or isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise InvalidArgument(f"{count} prompts, but {len(params)} sampling_params")
    return params


@contextmanager
def _progress(total: int, wanted: bool) -> Iterator[Callable[[], object]]:
    """A bar of tqdm where that is installed."""
    if wanted:
        try:
            from tqdm import tqdm
        except ImportError:
            wanted = False
    if not wanted:
        yield lambda: None
        return
    with tqdm(total=total, desc="Processed prompts", dynamic_ncols=True) as bar:
        yield lambda: bar.update(1)
