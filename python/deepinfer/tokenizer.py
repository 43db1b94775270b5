"""The model's tokenizer."""

from __future__ import annotations

from collections.abc import Iterable

from . import _native


class Tokenizer:
    """Text to token ids and back, as the model's tokenizer.json says. Valid while its engine is."""

    def __init__(self, engine: _native.Engine) -> None:
        facts = engine.describe()
        self._engine = engine
        self.bos_token_id: int = facts["bos_token_id"]
        self.eos_token_id: int = facts["eos_token_id"]
        self.vocab_size: int = facts["vocab_size"]

    def encode(self, text: str, add_bos_token: bool = False) -> list[int]:
        """The ids of `text`; text that spells a special token becomes that token.

        With `add_bos_token` the first token opens the text, be it spelled there or not.
        """
        ids = self._engine.encode(text.encode("utf-8", "surrogatepass"))
        if add_bos_token and ids[:1] != [self.bos_token_id]:
            ids.insert(0, self.bos_token_id)
        return ids

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        return self._engine.decode(ids, skip_special_tokens)
