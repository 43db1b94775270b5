"""Fixtures: an engine for all tests that leave it as they found it, and the program."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from deepinfer import LLM
from support import MODEL, small_options


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    """One engine for all tests that leave it as they found it."""
    with LLM(MODEL, **small_options()) as llm:
        yield llm


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    """The command line, which tools/test_python.sh builds and names."""
    path = os.environ.get("DI_PROGRAM")
    if path is None:
        pytest.skip("DI_PROGRAM does not name the program deepinfer")
    return pathlib.Path(path)
