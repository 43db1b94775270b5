"""What the tests share: the default model, small engines, and the program to compare with."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from deepinfer import LLM

ROOT = pathlib.Path(__file__).parents[2]
MODEL = ROOT / "models" / "seedling"

PROMPTS = ["What is a volcano?", "Tell me a story", "The sea", "One, two, three,", "A fox", "Why?"]


def small_options(**others: Any) -> dict[str, Any]:
    """Options at which the default model opens and runs in moments."""
    return {"context": 512, "max_num_seqs": 16, "check_integrity": True, **others}


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    """One engine for all tests that leave it as they found it."""
    with LLM(MODEL, **small_options()) as llm:
        yield llm


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    """The command line, which tools/test_python.sh builds and names."""
    path = os.environ.get("DEEPINFER_PROGRAM")
    if path is None:
        pytest.skip("DEEPINFER_PROGRAM does not name the program deepinfer")
    return pathlib.Path(path)
