"""Conversations: messages in, an answer in parts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._native import RequestOutput

Message = Mapping[str, Any]


@dataclass(frozen=True)
class ChatOutput:
    """What the model answered."""

    content: str
    reasoning: str
    tool_calls: list[dict[str, str]]  # name, and arguments as a JSON text
    output: RequestOutput  # tokens, logprobs and why it ended

    def message(self) -> dict[str, Any]:
        """The answer as a message, to go on with the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


def conversation(
    messages: Sequence[Message],
    thinking: bool | int | str | None,
    tools: Sequence[Mapping[str, Any]] | None,
) -> dict[str, object]:
    """A conversation in the engine's neutral form."""
    neutral: dict[str, object] = {"messages": [_message(message) for message in messages]}
    if isinstance(thinking, bool):
        neutral["thinking_mode"] = thinking
    elif thinking is not None:
        neutral["reasoning_effort"] = thinking
    if tools:
        neutral["tools"] = [_function(tool) for tool in tools]
    return neutral


def _message(message: Message) -> dict[str, Any]:
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_function(call) for call in calls]} if calls else {**message}


def _function(item: Mapping[str, Any]) -> dict[str, Any]:
    """A tool or call, whether or not its function is wrapped as chat protocols do."""
    function = item.get("function")
    if not isinstance(function, Mapping):
        return {**item}
    return {**function, "id": item["id"]} if "id" in item else {**function}
