"""The parsed template: statements that write, expressions that have a value."""

from collections.abc import Sequence
from typing import Union

from msgspec import Struct


class Dot(Struct, frozen=True):
    """``.``"""


class Nil(Struct, frozen=True):
    """``nil``, allowed only as an argument."""


class TemplateConstant(Struct, frozen=True):
    """A text, number or truth value written in the template."""

    value: str | int | float | bool


class Field(Struct, frozen=True):
    """``.a.b``: fields of the dot."""

    names: tuple[str, ...]


class Variable(Struct, frozen=True):
    """``$x.a.b``: a variable, then fields of it."""

    name: str
    names: tuple[str, ...] = ()


class Chain(Struct, frozen=True):
    """``(…).a.b``: fields of a parenthesized pipeline or a function's result."""

    node: "Expression"
    names: tuple[str, ...]


class Function(Struct, frozen=True):
    """The name of a function."""

    name: str


class Pipe(Struct, frozen=True):
    """Commands joined by ``|``, and the variables that take the result."""

    commands: tuple[tuple["Expression", ...], ...]
    variables: tuple[str, ...] = ()
    assigns: bool = False  # ``=`` sets, ``:=`` declares


Expression = Union[  # noqa: UP007 - msgspec resolves the names of a recursive type
    Dot, Nil, TemplateConstant, Field, Variable, Chain, Function, Pipe
]


class TemplateText(Struct, frozen=True):
    """Text outside actions."""

    text: str


class Action(Struct, frozen=True):
    """A pipeline whose value is written, unless it goes into variables."""

    pipe: Pipe


class If(Struct, frozen=True):
    """``if``, and ``with`` when the value becomes the dot."""

    pipe: Pipe
    body: Sequence["Statement"]
    otherwise: Sequence["Statement"]
    is_with: bool


class Range(Struct, frozen=True):
    """``range``."""

    pipe: Pipe
    body: Sequence["Statement"]
    otherwise: Sequence["Statement"]


class Call(Struct, frozen=True):
    """``template`` and the place of a ``block``."""

    name: str
    pipe: Pipe | None


class Jump(Struct, frozen=True):
    """``break`` or ``continue``."""

    word: str


Statement = Union[TemplateText, Action, If, Range, Call, Jump]  # noqa: UP007 - as above
