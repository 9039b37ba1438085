"""The nodes of a parsed template, which evaluate and write themselves."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from podscale.core.goquote import quote
from podscale.core.gotemplate.errors import TemplateExecutionError
from podscale.core.gotemplate.functions import BUILTINS, SHORT_CIRCUIT
from podscale.core.gotemplate.values import (
    Operand,
    TemplateFields,
    Value,
    field_of,
    is_true,
    kind,
    show,
)

# A template writes one query. Past these bounds it is a loop or a mistake, and the
# process that renders it serves others; Go has no such bounds.
_MOST_STEPS = 100_000
_MOST_OUTPUT = 4 * 1024 * 1024


class Output:
    """The text of one rendering so far, and how much work is left to it."""

    def __init__(self, templates: "Mapping[str, Body]") -> None:
        self.templates = templates
        self.written: list[str] = []
        self._steps = _MOST_STEPS
        self._size = 0

    def write(self, text: str) -> None:
        """Add ``text``; raises ``TemplateExecutionError`` when it is too much."""
        self._size += len(text)
        if self._size > _MOST_OUTPUT:
            raise TemplateExecutionError(f"writes more than {_MOST_OUTPUT} characters")
        self.written.append(text)

    def step(self) -> None:
        """Count one piece of work; raises ``TemplateExecutionError`` when it is too much."""
        self._steps -= 1
        if self._steps < 0:
            raise TemplateExecutionError(f"takes more than {_MOST_STEPS} steps")


class Scope(Struct, frozen=True):
    """What names mean at one place: the dot, and the variables by name, ``$`` among them."""

    dot: Operand
    variables: dict[str, Operand]
    output: Output

    def inner(self) -> "Scope":
        """Return a scope whose variables end with it."""
        return Scope(self.dot, dict(self.variables), self.output)

    def at(self, dot: Operand) -> "Scope":
        """Return an inner scope with another dot."""
        return Scope(dot, dict(self.variables), self.output)


class TemplateExpression(Protocol):
    """What has a value."""

    def evaluate(self, scope: Scope) -> Operand:
        """Return the value; raises ``TemplateExecutionError``."""


class TemplateStatement(Protocol):
    """What writes text."""

    def write(self, scope: Scope) -> None:
        """Write it to the scope's output; raises ``TemplateExecutionError``."""


Body = Sequence[TemplateStatement]


class TemplateConstant(Struct, frozen=True):
    """A text, a number or a truth value written in the template."""

    value: str | int | bool

    def evaluate(self, scope: Scope) -> Operand:
        return self.value


class FieldPath(Struct, frozen=True):
    """``.``, ``.a.b``, ``$x`` or ``$x.a``: the dot or a variable, then fields of it."""

    variable: str | None
    names: Sequence[str]

    def evaluate(self, scope: Scope) -> Operand:
        """Return the field's value."""
        value = scope.dot
        if self.variable is not None:
            if self.variable not in scope.variables:  # ``$x := $x``
                raise TemplateExecutionError(f"undefined variable: {self.variable}")
            value = scope.variables[self.variable]
        for name in self.names:
            value = field_of(value, name)
        return value


class TemplateFunction(Struct, frozen=True):
    """``f a b``; ``piped`` is what stands before the ``|``, the last argument."""

    name: str
    arguments: Sequence[TemplateExpression]
    piped: TemplateExpression | None

    def evaluate(self, scope: Scope) -> Operand:
        scope.output.step()
        piped = () if self.piped is None else (self.piped.evaluate(scope),)
        if self.name in SHORT_CIRCUIT:
            value: Operand = None
            for argument in self.arguments:
                value = argument.evaluate(scope)
                if is_true(value) == (self.name == "or"):
                    return value
            return piped[0] if piped else value
        values = [*(argument.evaluate(scope) for argument in self.arguments), *piped]
        try:
            return BUILTINS[self.name].call(values)
        except TemplateExecutionError as error:
            raise TemplateExecutionError(f"error calling {self.name}: {error}") from None


class PlainText(Struct, frozen=True):
    """Text outside actions."""

    text: str

    def write(self, scope: Scope) -> None:
        scope.output.write(self.text)


class Pipeline(Struct, frozen=True):
    """An expression whose value is written, or goes into variables."""

    value: TemplateExpression
    variables: Sequence[str] = ()

    def write(self, scope: Scope) -> None:
        """Write the value, unless variables take it."""
        value = self.set(scope)
        if not self.variables:
            scope.output.write("<no value>" if value is None else show(value))

    def set(self, scope: Scope) -> Operand:
        """Return the value, and let it be that of the variables in ``scope``."""
        scope.output.step()
        value = self.value.evaluate(scope)
        scope.variables.update(dict.fromkeys(self.variables, value))
        return value


class IfStatement(Struct, frozen=True):
    """``if``, and ``with`` where the value becomes the dot."""

    pipeline: Pipeline
    body: Body
    otherwise: Body
    is_with: bool

    def write(self, scope: Scope) -> None:
        """Write one of the two bodies."""
        inner = scope.inner()
        value = self.pipeline.set(inner)
        if is_true(value):
            write_all(self.body, inner.at(value) if self.is_with else inner)
        else:
            write_all(self.otherwise, inner)


class Loop(Struct, frozen=True):
    """``range``."""

    pipeline: Pipeline
    body: Body
    otherwise: Body

    def write(self, scope: Scope) -> None:
        """Write the body for each item, or the other body where there is none."""
        around = scope.inner()
        items = _items(self.pipeline.set(around))
        names = self.pipeline.variables
        is_empty = True
        for key, item in items:
            is_empty = False
            scope.output.step()
            inner = around.at(item)
            inner.variables.update(
                zip(names, (key, item) if len(names) == 2 else (item,), strict=False)
            )
            write_all(self.body, inner)
        if is_empty:
            write_all(self.otherwise, around)


class TemplateCall(Struct, frozen=True):
    """``template "name" pipeline``."""

    name: str
    pipeline: Pipeline | None

    def write(self, scope: Scope) -> None:
        """Write the template of that name, with the pipeline's value as its dot."""
        dot = self.pipeline.set(scope.inner()) if self.pipeline else None
        if self.name not in scope.output.templates:
            raise TemplateExecutionError(f"template {quote(self.name)} not defined")
        write_all(scope.output.templates[self.name], Scope(dot, {"$": dot}, scope.output))


class Template:
    """A parsed template; rendering is pure."""

    def __init__(self, name: str, templates: Mapping[str, Body]) -> None:
        self._name = name
        self._templates = templates

    def render(self, fields: Mapping[str, Value]) -> str:
        """Return the text; raises ``TemplateExecutionError`` for an unknown field or a bad call."""
        output = Output(self._templates)
        dot = TemplateFields(fields)
        try:
            write_all(self._templates[self._name], Scope(dot, {"$": dot}, output))
        except RecursionError:
            raise TemplateExecutionError("exceeded maximum template depth") from None
        return "".join(output.written)


def write_all(body: Body, scope: Scope) -> None:
    """Write the statements in their order; each may declare variables for the next."""
    for statement in body:
        scope.output.step()
        statement.write(scope)


def _items(value: Operand) -> Iterable[tuple[Operand, Operand]]:
    """Return what ``range`` walks over: index and item, or key and item sorted by key."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return sorted(value.items())
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TemplateExecutionError(f"rules can range over lists and maps, not {kind(value)}")
    return enumerate(value)
