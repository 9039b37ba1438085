"""What a command is given: files, groups of options, and the refusal of what does not fit."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

EXIT_USAGE = 2  # the call, or a file it names, must be changed first


class CommandFailed(click.ClickException):
    """It could not be done; the text says why, and what to do."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.ctx = click.get_current_context(silent=True)  # names the command before the message


class WrongInput(CommandFailed):
    """The call or a file must be changed first; the text says how."""

    exit_code = EXIT_USAGE


def called(file: str) -> str:
    """Return what to call a file, ``-`` is stdin."""
    return "stdin" if file == "-" else file


def read(file: str, errors: str = "strict") -> str:
    """Return the text of a file, ``-`` is stdin; raises ``WrongInput``.

    ``errors`` as for ``bytes.decode``: what is no UTF-8 may be left to the reader of YAML.
    """
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode(errors=errors)
    except UnicodeDecodeError as error:
        why = f"not a text file in UTF-8: {error.reason}"
        raise WrongInput(f"{called(file)}: {why}") from None
    except OSError as error:
        raise WrongInput(f"{called(file)}: cannot be read: {error.strerror}") from None


def write(file: str, text: str) -> None:
    """Write a file; raises ``WrongInput``."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise WrongInput(f"{file}: cannot be written: {error.strerror}") from None


def seconds(flag: str, text: str) -> float:
    """Return the seconds of Go's 1h30m or Prometheus's 14d; raises ``WrongInput``."""
    # Imported here: --help must not load it.
    from podscale.core.times import duration

    for parse in (duration.parse_go, duration.parse_prometheus):
        try:
            found = parse(text)
        except duration.DurationError:
            continue
        if found < 0:
            raise WrongInput(f"{flag}: {text} lies before the beginning")
        return found
    raise WrongInput(f"{flag} {text}: not a duration; {duration.WRITE_ONE} (or 14d)")


def collecting(
    command: Callable[..., object],
    name: str,
    options: Iterable[str],
    make: Callable[[Mapping[str, Any]], object],
) -> Callable[..., object]:
    """Return ``command`` taking the ``options``, which it gets as one value called ``name``."""

    def collected(**given: object) -> object:
        picked = {option: given.pop(option) for option in options}
        return command(**{name: make(picked)}, **given)

    collected.__doc__ = command.__doc__
    collected.__name__ = command.__name__
    # Options that were put on before these live on the function click decorated.
    collected.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    return collected
