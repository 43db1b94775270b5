"""DeepInfer: exact, batched inference of DeepSeek-V4.1-Flash on the CPU.

    from deepinfer import LLM, SamplingParams

    with LLM("path/to/model") as llm:
        print(llm.generate(["What is a volcano?"], SamplingParams(max_tokens=64)))

`LLM` is for scripts and batches, `AsyncEngine` for programs on asyncio; docs/python.md explains.
"""

from importlib.metadata import version as _version

from ._native import CompletionOutput, RequestOutput, gather
from .async_engine import AsyncEngine
from .chat import ChatOutput
from .errors import (
    Busy,
    Error,
    InvalidArgument,
    InvalidFile,
    Io,
    NotFound,
    OutOfMemory,
    RequestFailed,
    Unsupported,
)
from .llm import LLM
from .options import EngineOptions
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

__version__ = _version("deepinfer")

__all__ = [
    "LLM",
    "AsyncEngine",
    "Busy",
    "ChatOutput",
    "CompletionOutput",
    "EngineOptions",
    "Error",
    "InvalidArgument",
    "InvalidFile",
    "Io",
    "NotFound",
    "OutOfMemory",
    "RequestFailed",
    "RequestOutput",
    "SamplingParams",
    "Tokenizer",
    "Unsupported",
    "gather",
]
