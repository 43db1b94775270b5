"""What the tests share: the default model, and options at which it runs in moments."""

from __future__ import annotations

import pathlib
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
MODEL = ROOT / "models" / "seedling"

PROMPTS = ["What is a volcano?", "Tell me a story", "The sea", "One, two, three,", "A fox", "Why?"]


def small_options(**others: Any) -> dict[str, Any]:
    """Options at which the default model opens and runs in moments."""
    return {"context": 512, "max_num_seqs": 16, "check_integrity": True, **others}
