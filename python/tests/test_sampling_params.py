"""SamplingParams: the engine's fields, checked when they are made."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy
import pytest

from deepinfer import InvalidArgument, SamplingParams, Unsupported


def test_defaults_are_those_of_the_engine() -> None:
    assert SamplingParams().changes() == {}


def test_every_field_reaches_the_engine() -> None:
    values: dict[str, object] = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -1.0,
        "frequency_penalty": 0.5,
        "logit_bias": {"3": 1.5},
        "allowed_token_ids": [3, 4],
        "banned_token_ids": [5],
        "seed": 2**64 - 1,
        "max_tokens": 100,
        "min_tokens": 2,
        "first_n_token_no_eos": 1,
        "ignore_eos": True,
        "stop_token_ids": [6],
        "stop": ["end"],
        "n": 2,
        "logprobs": True,
        "top_logprobs": 4,
        "prompt_logprobs": True,
        "processed_logprobs": True,
        "golden_token_ids": [-1, 3],
    }
    assert set(values) == {field.name for field in dataclasses.fields(SamplingParams)}
    arguments = {**values, "logit_bias": {3: 1.5}, "stop": "end"}
    assert SamplingParams(**arguments).changes() == values  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_k": -2}, "top_k is -2"),
        ({"top_k": 2**70}, "64 bits"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_logprobs": 1001}, "top_logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": [b"bytes"]}, "bytes"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"seed": 1, "seq_seed": 2}, "same parameter"),
    ],
)
def test_a_value_out_of_range_is_refused_when_it_is_given(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        SamplingParams(**arguments)  # type: ignore[arg-type]


def test_names_and_values_of_the_original_are_understood() -> None:
    params = SamplingParams(top_k=-1, seq_seed=-1, so_args=None, eos_id=0, golden_token_ids=None)
    assert params.seed == 2**64 - 1
    assert SamplingParams(seq_seed=2**64 + 5) == SamplingParams(seed=5)
    with pytest.raises(Unsupported, match="so_args"):
        SamplingParams(so_args={"schema_type": "json"})  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    params = SamplingParams(
        temperature=numpy.float32(0.5),  # type: ignore[arg-type]
        max_tokens=numpy.int64(3),  # type: ignore[arg-type]
        stop_token_ids=numpy.array([7, 8]),  # type: ignore[arg-type]
    )
    assert params.changes() == {"temperature": 0.5, "max_tokens": 3, "stop_token_ids": [7, 8]}


def test_copies_are_equal_and_independent() -> None:
    params = SamplingParams(stop=["a"], logit_bias={1: 2.0}, seed=3)
    for other in (params.copy(), copy.copy(params), pickle.loads(pickle.dumps(params))):
        assert other == params
        other.max_tokens = 99
        assert other != params
    assert dataclasses.replace(params, seed=4).seed == 4
    deep = params.copy()
    deep.logit_bias[1] = 5.0
    assert params.logit_bias == {1: 2.0}


def test_what_is_shown_makes_an_equal_one() -> None:
    params = SamplingParams(seed=3, stop=["a"], logit_bias={1: 2.0}, temperature=0)
    assert eval(repr(params)) == params
    assert repr(SamplingParams()) == "SamplingParams()"
