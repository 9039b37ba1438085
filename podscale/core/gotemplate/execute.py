"""Walks the tree of a template and writes its text (``text/template``'s exec)."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from podscale.core.goquote import quote
from podscale.core.gotemplate.errors import TemplateExecutionError
from podscale.core.gotemplate.format import sprint
from podscale.core.gotemplate.functions import BUILTINS, SHORT_CIRCUIT, field_of
from podscale.core.gotemplate.parse import read
from podscale.core.gotemplate.tree import (
    Action,
    Call,
    Chain,
    Dot,
    Expression,
    Field,
    Function,
    If,
    Jump,
    Nil,
    Pipe,
    Range,
    Statement,
    TemplateConstant,
    TemplateText,
    Variable,
)
from podscale.core.gotemplate.values import Operand, TemplateRecord, Value, is_true

# A template writes one query. Past these bounds it is a loop or a mistake, and the
# process that renders it serves others; Go has no such bounds.
_MOST_STEPS = 100_000
_MOST_OUTPUT = 4 * 1024 * 1024

_FUNCTION_NAMES = frozenset(BUILTINS) | SHORT_CIRCUIT


class Template:
    """A parsed template; rendering is pure."""

    def __init__(self, name: str, trees: Mapping[str, Sequence[Statement]]) -> None:
        self._name = name
        self._trees = trees

    def render(self, fields: Mapping[str, Value], type_name: str = "struct") -> str:
        """Return the text; raises ``TemplateExecutionError`` for an unknown field or a bad call.

        Lists and maps in ``fields`` may nest; a map whose values are all texts is Go's
        ``map[string]string``, where ``index`` of an absent key is ``""``. ``type_name`` is what
        ``printf "%T" .`` shows.
        """
        run = _Run(self._trees)
        try:
            run.template(self._name, TemplateRecord(fields, type_name))
        except RecursionError:
            raise TemplateExecutionError(
                f"template: {self._name}: exceeded maximum template depth"
            ) from None
        except TemplateExecutionError as error:
            raise TemplateExecutionError(f"template: {self._name}: {error}") from None
        return "".join(run.written)


def parse(text: str, left: str = "<<", right: str = ">>", name: str = "template") -> Template:
    """Return the template; raises ``TemplateSyntaxError`` for syntax and unknown functions.

    ``name`` appears in messages and is what ``template`` calls the whole by.
    """
    return Template(name, read(text, left, right, name, _FUNCTION_NAMES))


class _Run:
    """One execution: the text so far, the variables in scope, the budget left."""

    def __init__(self, trees: Mapping[str, Sequence[Statement]]) -> None:
        self._trees = trees
        self._variables: list[tuple[str, Operand]] = []
        self._steps = _MOST_STEPS
        self._size = 0
        self.written: list[str] = []

    def template(self, name: str, dot: Operand) -> None:
        if name not in self._trees:
            raise TemplateExecutionError(f"template {quote(name)} not defined")
        outer = self._variables
        self._variables = [("$", dot)]
        self._walk(self._trees[name], dot)
        self._variables = outer

    def _write(self, text: str) -> None:
        self._size += len(text)
        if self._size > _MOST_OUTPUT:
            raise TemplateExecutionError(f"writes more than {_MOST_OUTPUT} characters")
        self.written.append(text)

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise TemplateExecutionError(f"takes more than {_MOST_STEPS} steps")

    def _walk(self, body: Sequence[Statement], dot: Operand) -> str | None:
        """Execute statements; return the jump that ended them early, if one did."""
        for statement in body:
            self._step()
            jump: str | None = None
            match statement:
                case TemplateText():
                    self._write(statement.text)
                case Action():
                    value = self._pipe(dot, statement.pipe)
                    if not statement.pipe.variables:
                        self._write("<no value>" if value is None else sprint([value]))
                case If():
                    jump = self._if(statement, dot)
                case Range():
                    self._range(statement, dot)
                case Call():
                    argument = self._pipe(dot, statement.pipe) if statement.pipe else None
                    self.template(statement.name, argument)
                case Jump():
                    jump = statement.word
            if jump is not None:
                return jump
        return None

    def _if(self, statement: If, dot: Operand) -> str | None:
        scope = len(self._variables)
        value = self._pipe(dot, statement.pipe)
        if is_true(value):
            jump = self._walk(statement.body, value if statement.is_with else dot)
        else:
            jump = self._walk(statement.otherwise, dot)
        del self._variables[scope:]
        return jump

    def _range(self, statement: Range, dot: Operand) -> None:
        scope = len(self._variables)
        value = self._pipe(dot, statement.pipe)
        inner = len(self._variables)
        is_empty = True
        for key, item in _items(value, len(statement.pipe.variables)):
            self._step()
            is_empty = False
            self._bind(statement.pipe, key, item, inner)
            jump = self._walk(statement.body, item)
            del self._variables[inner:]
            if jump == "break":
                break
        if is_empty:
            self._walk(statement.otherwise, dot)
        del self._variables[scope:]

    def _bind(self, pipe: Pipe, key: Operand, item: Operand, top: int) -> None:
        values = (key, item) if len(pipe.variables) == 2 else (item,)
        for place, (name, value) in enumerate(zip(pipe.variables, values, strict=False)):
            if pipe.assigns:
                self._set(name, value)
            else:
                self._variables[top - len(pipe.variables) + place] = (name, value)

    def _set(self, name: str, value: Operand) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            if self._variables[at][0] == name:
                self._variables[at] = (name, value)
                return
        raise TemplateExecutionError(f"undefined variable: {name}")

    def _pipe(self, dot: Operand, pipe: Pipe) -> Operand:
        self._step()
        piped: tuple[Operand, ...] = ()
        for command in pipe.commands:
            piped = (self._command(dot, command, piped),)
        for name in pipe.variables:
            if pipe.assigns:
                self._set(name, piped[0])
            else:
                self._variables.append((name, piped[0]))
        return piped[0]

    def _command(
        self, dot: Operand, command: tuple[Expression, ...], piped: tuple[Operand, ...]
    ) -> Operand:
        first = command[0]
        if isinstance(first, Function):
            return self._function(dot, first.name, command[1:], piped)
        if isinstance(first, Nil):
            raise TemplateExecutionError("nil is not a command")
        if len(command) > 1 or piped:
            if isinstance(first, Field | Variable | Chain) and first.names:
                receiver = self._evaluate(dot, structs.replace(first, names=first.names[:-1]))
                if receiver is None:  # a field of nothing is nothing, whatever it is given
                    return None
            raise TemplateExecutionError("can't give argument to non-function")
        return self._evaluate(dot, first)

    def _evaluate(self, dot: Operand, node: Expression) -> Operand:
        self._step()
        match node:
            case TemplateConstant():
                return node.value
            case Dot():
                return dot
            case Nil():
                return None
            case Field():
                return _follow(dot, node.names)
            case Variable():
                return _follow(self._get(node.name), node.names)
            case Chain():
                return _follow(self._evaluate(dot, node.node), node.names)
            case Function():
                return self._function(dot, node.name, (), ())
            case Pipe():
                return self._pipe(dot, node)

    def _get(self, name: str) -> Operand:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise TemplateExecutionError(f"undefined variable: {name}")

    def _function(
        self,
        dot: Operand,
        name: str,
        arguments: tuple[Expression, ...],
        piped: tuple[Operand, ...],
    ) -> Operand:
        count = len(arguments) + len(piped)
        if name in SHORT_CIRCUIT:
            if not count:
                raise TemplateExecutionError(
                    f"wrong number of args for {name}: want at least 1 got 0"
                )
            return self._short_circuit(dot, name, arguments, piped)
        builtin = BUILTINS[name]
        if count < builtin.least or (builtin.most is not None and count > builtin.most):
            want = builtin.least if builtin.most == builtin.least else f"at least {builtin.least}"
            raise TemplateExecutionError(
                f"wrong number of args for {name}: want {want} got {count}"
            )
        values = [self._evaluate(dot, argument) for argument in arguments]
        try:
            return builtin.call([*values, *piped])
        except TemplateExecutionError as error:
            raise TemplateExecutionError(f"error calling {name}: {error}") from None

    def _short_circuit(
        self,
        dot: Operand,
        name: str,
        arguments: tuple[Expression, ...],
        piped: tuple[Operand, ...],
    ) -> Operand:
        value: Operand = None
        for argument in arguments:
            value = self._evaluate(dot, argument)
            if is_true(value) == (name == "or"):
                return value
        return piped[0] if piped else value


def _follow(value: Operand, names: Iterable[str]) -> Operand:
    for name in names:
        value = field_of(value, name)
    return value


def _items(value: Operand, variables: int) -> Iterable[tuple[Operand, Operand]]:
    """Return what ``range`` walks over: index and item, or key and item sorted by key."""
    match value:
        case None:
            return ()
        case bool() | str() | float() | TemplateRecord():
            raise TemplateExecutionError(f"range can't iterate over {sprint([value])}")
        case int():
            if variables > 1:
                raise TemplateExecutionError(
                    f"can't use {value} to iterate over more than one variable"
                )
            return ((number, number) for number in range(value))
        case Mapping():
            return sorted(value.items())
    return enumerate(value)
