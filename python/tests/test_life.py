"""The life of engines: closing, leaving the interpreter, forking, and what the package promises."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
import time

import pytest

import deepinfer
from deepinfer import LLM, SamplingParams, Unsupported
from support import MODEL, PROMPTS, ROOT, small_options

LONG = SamplingParams(max_tokens=400, ignore_eos=True)


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code of its own process, which has a minute to end by itself."""
    options = repr(small_options())
    begin = f"import deepinfer\nMODEL = {str(MODEL)!r}\nOPTIONS = {options}\n"
    return subprocess.run(
        [sys.executable, "-c", begin + script], capture_output=True, text=True, timeout=60
    )


def test_a_closed_engine_refuses_politely() -> None:
    llm = LLM(MODEL, **small_options())
    tokenizer = llm.get_tokenizer()
    llm.close()
    llm.close()
    for call in (
        lambda: llm.generate(PROMPTS[0]),
        lambda: llm.stats(),
        lambda: tokenizer.encode("a"),
        lambda: next(llm.stream("a")),
    ):
        with pytest.raises(Unsupported, match="closed"):
            call()
    assert llm.context == 512


def test_closing_amid_a_stream_takes_a_step_at_most() -> None:
    llm = LLM(MODEL, **small_options())
    stream = llm.stream(PROMPTS[0], LONG)
    next(stream)
    begin = time.perf_counter()
    llm.close()
    assert time.perf_counter() - begin < 10
    assert list(stream)[-1].finish_reason == "abort"


def test_engines_that_are_forgotten_are_collected() -> None:
    for _ in range(5):
        llm = LLM(MODEL, **small_options())
        stream = llm.stream(PROMPTS[0], LONG)
        next(stream)
        del llm, stream
    gc.collect()


def test_the_interpreter_ends_while_an_engine_runs() -> None:
    script = """
llm = deepinfer.LLM(MODEL, **OPTIONS)
stream = llm.stream("Hello", deepinfer.SamplingParams(max_tokens=400, ignore_eos=True))
print(next(stream).finished)
"""
    run = run_script(script)
    assert (run.returncode, run.stdout, run.stderr) == (0, "False\n", "")


def test_an_error_amid_a_loop_ends_the_program() -> None:
    script = """
import asyncio
async def main():
    engine = deepinfer.AsyncEngine(MODEL, **OPTIONS)
    async for _ in engine.generate("Hello", deepinfer.SamplingParams(max_tokens=400)):
        raise RuntimeError("enough")
asyncio.run(main())
"""
    run = run_script(script)
    assert run.returncode == 1
    assert run.stderr.rstrip().endswith("RuntimeError: enough")


def test_a_forked_process_leaves_the_engine_to_its_parent() -> None:
    script = """
import os
llm = deepinfer.LLM(MODEL, **OPTIONS)
child = os.fork()
if child == 0:
    try:
        llm.generate("Hello")
    except deepinfer.Unsupported:
        del llm
        raise SystemExit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(len(llm.generate("Hello", use_tqdm=False)))
"""
    run = run_script(script)
    assert (run.returncode, run.stdout) == (0, "7\n1\n"), run.stderr


def test_errors_have_classes_of_their_own() -> None:
    for kind, parents in {
        deepinfer.InvalidArgument: (ValueError,),
        deepinfer.OutOfMemory: (MemoryError,),
        deepinfer.Io: (OSError,),
        deepinfer.InvalidFile: (),
        deepinfer.NotFound: (),
        deepinfer.Unsupported: (),
        deepinfer.Busy: (),
        deepinfer.RequestFailed: (),
    }.items():
        assert issubclass(kind, (deepinfer.Error, *parents))
        assert issubclass(kind, deepinfer.Error)
        assert all(issubclass(kind, parent) for parent in parents)


def test_too_little_memory_is_an_error_with_numbers() -> None:
    with pytest.raises(MemoryError, match=r"\d"):
        LLM(MODEL, context=4096, num_blocks=2**34)


def test_damaged_files_are_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(deepinfer.Error, match=r"config\.json"):
        LLM(tmp_path)


def test_the_example_runs() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "quickstart.py", MODEL],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert "12" in run.stdout


@pytest.mark.parametrize("what", [["-p", "deepinfer"], ["examples", "python/tests"]])
def test_types_are_right(what: list[str]) -> None:
    pytest.importorskip("mypy")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *what], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout
