"""What can go wrong. All classes are `Error`s; some are a class of Python's own, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._native import RequestOutput


class Error(Exception):
    """Something that the caller can fix; the message says what, where and how."""


class InvalidArgument(Error, ValueError):
    """A parameter, option or prompt is out of its range."""


class InvalidFile(Error):
    """A file of the model breaks its format or contradicts another file."""


class NotFound(Error):
    """A file, tensor or key that must exist does not."""


class Unsupported(Error):
    """Well formed, but this build, machine or engine, which may be closed, cannot do it."""


class OutOfMemory(Error, MemoryError):
    """The memory plan does not fit this machine; the message holds the numbers."""


class Io(Error, OSError):
    """The operating system refused a read, write or map."""


class Busy(Error):
    """The queue is full; the same request may be taken later."""


class RequestFailed(Error):
    """A request ended amid its output, for a reason of its own. Others are not affected.

    `outputs` holds what the call made nevertheless, in the order of the prompts.
    """

    def __init__(self, message: str, outputs: list[RequestOutput]) -> None:
        super().__init__(message)
        self.outputs = outputs
