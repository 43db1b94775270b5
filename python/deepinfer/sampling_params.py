"""SamplingParams: how a request's tokens are drawn, what ends it, what is told beside them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from . import _native
from .errors import InvalidArgument, Unsupported


@dataclass(kw_only=True, repr=False)
class SamplingParams:
    """Parameters of one request, checked when they are made and again when they are used.

    The fields and their order of action are those of docs/sampling.md.

    Distribution
        temperature: divides the logits. 0 takes the best token, ties to the lower id; every value
            above 0 is used as it is, however small.
        top_p: (0, 1], keep the fewest best tokens that reach this mass.
        top_k: keep this many best tokens; 0 or -1 keeps all.
        min_p: [0, 1], drop tokens below this share of the best one's mass.
        repetition_penalty: divides positive, multiplies negative logits of ids seen before.
        presence_penalty: [-2, 2], taken from the logit of each id in the output.
        frequency_penalty: [-2, 2], taken once for each time the id is in the output.
        logit_bias: added to the logits of these ids.
        allowed_token_ids: when not empty, nothing else is drawn.
        banned_token_ids: never drawn.
        seed: of the request's random numbers; None draws one from the engine's seed, another one
            for each request, also when requests share their parameters.

    End
        max_tokens: at least 1.
        min_tokens: before this many, no end token is drawn and no stop string counts.
        first_n_token_no_eos: the end token is not drawn among the first n.
        ignore_eos: the end token is a token like any other.
        stop_token_ids: each ends the choice, as the end token does.
        stop: a text or several; ends the choice and is no part of it.

    Choices and reports
        n: independent choices for the same prompt.
        logprobs: report each token's logprob.
        top_logprobs: report this many best tokens beside it, 0 to 1000.
        prompt_logprobs: report the logprob of each prompt token but the first.
        processed_logprobs: logprobs after all of the above instead of the model's own.
        golden_token_ids: output token i is golden_token_ids[i] where that is not -1.

    For programs written for the original engine: `seq_seed` is another name of `seed`, cut to 64
    bits; `so_args` must be None; `eos_id` is taken from the model whatever is given.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] = ()
    banned_token_ids: Sequence[int] = ()
    seed: int | None = None

    max_tokens: int = 16
    min_tokens: int = 0
    first_n_token_no_eos: int = 0
    ignore_eos: bool = False
    stop_token_ids: Sequence[int] = ()
    stop: str | Sequence[str] = ()

    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    processed_logprobs: bool = False
    golden_token_ids: Sequence[int] | None = None

    seq_seed: InitVar[int | None] = None
    so_args: InitVar[None] = None
    eos_id: InitVar[int | None] = None

    def __post_init__(self, seq_seed: int | None, so_args: None, eos_id: int | None) -> None:
        if so_args is not None:
            raise Unsupported("so_args: this engine has no structured output")
        if seq_seed is not None:
            if self.seed is not None:
                raise InvalidArgument("seed and seq_seed are the same parameter; give one")
            self.seed = seq_seed & (2**64 - 1)
        self.changes()

    def to_dict(self) -> dict[str, object]:
        """All fields, in the form that the engine reads."""
        values: dict[str, object] = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self)
        }
        values["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        if isinstance(self.stop, str):
            values["stop"] = [self.stop]
        return values

    def changes(self) -> dict[str, Any]:
        """Fields that differ from their defaults; checks all of them on the way.

        Raises InvalidArgument naming the field, its value and its range.
        """
        return _native.check_sampling(self.to_dict())

    def copy(self) -> SamplingParams:
        """An independent copy."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        default = {f.name: f.default for f in dataclasses.fields(self)}
        changed = {name: getattr(self, name) for name in default}
        shown = [
            f"{name}={value!r}"
            for name, value in changed.items()
            if value != default[name] and not (name == "logit_bias" and not value)
        ]
        return f"SamplingParams({', '.join(shown)})"
