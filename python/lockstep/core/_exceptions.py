"""The name and the text by which a shell shows an exception of the program."""

from __future__ import annotations

_LONGEST_MESSAGE = 1 << 16  # characters


def name_of(error: BaseException) -> str:
    """"ValueError", "torch.cuda.OutOfMemoryError"."""
    name, module = type(error).__qualname__, type(error).__module__
    return name if module in ("builtins", "__main__") else f"{module}.{name}"


def message_of(error: BaseException) -> str:
    """The text of an exception, shortened. Never raises."""
    try:
        return shortened(str(error), _LONGEST_MESSAGE)
    except BaseException as failure:  # of the program's class
        return f"<its text can't be made: {type(failure).__name__}>"


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
