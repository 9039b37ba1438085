"""The part of Go's text/template that metric rules use; anything else is refused by name.

Fields, constants, ``if``, ``range``, and pipelines of ``index``, ``printf``, ``eq`` and ``ne``.
What is accepted renders as Go renders it. ``None`` is Go's nil and its "no value".

TemplateError
├── TemplateSyntaxError           it cannot be read: refused when the rules are loaded
│   └── TemplateConstructRefused  Go can read it, and rules cannot use it
└── TemplateExecutionError        it cannot be executed with these fields: fails one request
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from msgspec import Struct

from podscale.core.goquote import quote

LEFT = "<<"  # opens an action
_MOST_SHOWN = 40  # characters of an action in a message


class TemplateError(ValueError):
    """The template cannot be read, or cannot be executed with the given fields."""


class TemplateSyntaxError(TemplateError):
    """The text is not a template; the message quotes the action that is wrong, with its place."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        """``at`` is where in ``text`` the action opens."""
        self.opened = text.count(LEFT, 0, at)  # actions before that one
        shown, *others = text[at : at + _MOST_SHOWN + 1].split("\n", 1)
        if others or len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}…"
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        super().__init__(f"line {line}, column {column}: {reason}: {quote(shown)}")


class TemplateConstructRefused(TemplateSyntaxError):
    """The template uses what Go has and rules cannot use."""


class TemplateExecutionError(TemplateError):
    """The template asks for a field, an index or an operation that does not exist."""


# A template writes one query. Past these bounds it is a loop or a mistake, and the
# process that renders it serves others; Go has no such bounds.
_MOST_STEPS = 10_000
_MOST_OUTPUT = 4 * 1024 * 1024
_MOST_VALUES = 64 * 1024  # characters that ``printf`` makes in one rendering

Value = str | int | bool | None | Sequence[str] | Mapping[str, str]


class TemplateFields(Struct, frozen=True):
    """``.`` at the start: Go's struct, whose unknown field is an error, a map's is no value."""

    fields: Mapping[str, Value]


Operand = Value | TemplateFields


class Output:
    """The text of one rendering so far, and how much work is left to it."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._steps, self._left, self._values = _MOST_STEPS, _MOST_OUTPUT, _MOST_VALUES

    def write(self, text: str) -> None:
        """Add ``text``; raises ``TemplateExecutionError`` when it is too much."""
        self._left -= len(text)
        if self._left < 0:
            raise TemplateExecutionError(f"writes more than {_MOST_OUTPUT} characters")
        self.written.append(text)

    def step(self) -> "Output":
        """Return itself with one step less; raises ``TemplateExecutionError`` when none is left."""
        self._steps -= 1
        if self._steps < 0:
            raise TemplateExecutionError(f"takes more than {_MOST_STEPS} steps")
        return self

    def value(self, part: str) -> str:
        """Return a part of a value; raises ``TemplateExecutionError`` when it is too much."""
        self._values -= len(part)
        if self._values < 0:
            raise TemplateExecutionError(f"makes values of more than {_MOST_VALUES} characters")
        return part


def show(value: Operand) -> str:
    """Return the value as Go writes it."""
    match value:
        case None:
            return "<no value>"
        case str() | int():
            return str(value).lower() if isinstance(value, bool) else str(value)
        case TemplateFields():
            raise TemplateExecutionError("rules cannot write all fields at once: name one")
        case Mapping():
            return f"map[{' '.join(f'{key}:{item}' for key, item in sorted(value.items()))}]"
    return f"[{' '.join(value)}]"


def field_of(value: Operand, name: str) -> Value:
    """Return the field or entry ``name``; absent entries of maps are None, "no value"."""
    match value:
        case TemplateFields():
            if name not in value.fields:
                known = ", ".join(f".{each}" for each in value.fields)
                raise TemplateExecutionError(f"there is no field .{name}; there are {known}")
            return value.fields[name]
        case None | Mapping():
            return value.get(name) if value else None
    raise TemplateExecutionError(f"can't evaluate field {name}: only maps have fields")


def items(value: Operand) -> Sequence[tuple[Operand, Operand]]:
    """Return what ``range`` walks over: index and item, or key and item sorted by key."""
    match value:
        case None:
            return ()
        case Mapping():
            return sorted(value.items())
        case list():
            return list(enumerate(value))
    raise TemplateExecutionError("rules can range over lists and maps")


def _index(_: Output, arguments: Sequence[Operand]) -> Operand:
    item, index = arguments
    if isinstance(item, Mapping) and isinstance(index, str):
        return item.get(index, "")
    if isinstance(item, list) and isinstance(index, int) and 0 <= index < len(item):
        return str(item[index])
    raise TemplateExecutionError(f"rules index lists by numbers within, and maps by texts: {index}")


def _printf(output: Output, arguments: Sequence[Operand]) -> str:
    pattern, *values = arguments
    first, *parts = str(pattern).split("%")
    written = [first]
    for part, value in zip(parts, values, strict=True):
        if not isinstance(value, str):
            raise TemplateExecutionError("printf in rules writes texts alone")
        written.append(output.value((quote(value) if part[0] == "q" else value) + part[1:]))
    return "".join(written)


def _equal(_: Output, arguments: Sequence[Operand]) -> bool:
    one, other = arguments
    if type(one) is not type(other) or not isinstance(one, str | int):
        raise TemplateExecutionError("rules can compare texts with texts, and numbers with numbers")
    return one == other


FUNCTIONS: Mapping[str, Callable[[Output, Sequence[Operand]], Operand]] = {
    "eq": _equal,
    "index": _index,
    "ne": lambda output, arguments: not _equal(output, arguments),
    "printf": _printf,
}

_S = " \t\r\n"
_SPACE = re.compile(f"[{_S}]*")
_TRIM = re.compile(f"-(?=[{_S}])")  # behind the opening delimiter
_COMMENT = re.compile(rf"(?:(?<=-)[{_S}])?/\*(?:(?!\*/).)*+\*/(?:[{_S}]+->>[{_S}]*|>>)", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
_ELSE_IF = re.compile(rf"[{_S}]+if\b")
_DECLARED = re.compile(rf"[{_S}]*(\$\w*)(?:[{_S}]*,[{_S}]*(\$\w*))?[{_S}]*:=")
_PIPE = re.compile(rf"[{_S}]*\|")
_ARGUMENT = re.compile(rf"[{_S}]+(?=[\"`'$.(\w]|[+-][0-9])")
_END = re.compile(rf"[{_S}]+->>[{_S}]*|[{_S}]*>>")
_CLOSING = re.compile(rf"[{_S}]*\)(?!\.)")
_OPERAND = re.compile(
    r"""(?P<raw>`[^`]*`)
    |(?P<text>"(?:[^"\\\n]|\\[ntr\\"])*+")
    |(?P<number>[+-]?[0-9][\w.+-]*)
    |(?P<path>\$\w*(?:\.\w+)*|(?:\.\w+)+|\.)
    |(?P<truth>true\b|false\b)
    |(?P<group>\()""",
    re.VERBOSE,
)
# What Go reads there, and rules cannot use: words, characters, other escapes, assignments.
_OUTSIDE = re.compile(
    rf"""[{_S}]*(?:(?:and|block|break|call|continue|define|ge|gt|html|js|le|len|lt|nil|not|or|print
    |println|slice|template|urlquery|with)\b|'[^'\n]+'|"[^"\n]*"|\)\.|:?=)""",
    re.VERBOSE,
)
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_PATTERN = re.compile(rf"""[{_S}]+(?:`[^`]*`|"(?:[^"\\\n]|\\.)*+")""")
_VERB = re.compile(r"%(?:[sq]|(.?))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}
_DEEPEST = 100  # blocks, parentheses and pipes in each other


class _Scope(Struct, frozen=True):
    variables: Mapping[str, Operand]  # by name; "": the dot
    output: Output


_Expression = Callable[[_Scope], Operand]
_Body = Sequence[str | _Expression]


class Template(Struct, frozen=True):
    """A template that has been read."""

    body: _Body
    fields: frozenset[str]  # the first name of each path in it

    def render(self, fields: Mapping[str, Value]) -> str:
        """Return the text; raises ``TemplateExecutionError`` for an unknown field or a bad call."""
        dot, output = TemplateFields(fields), Output()
        _write(self.body, _Scope({"": dot, "$": dot}, output))
        return "".join(output.written)


def parse(text: str) -> Template:
    """Return the template; raises ``TemplateSyntaxError``, also for what rules cannot use."""
    parser = _Parser(text)
    body, word = parser.body()
    if word:
        raise parser.error(f"unexpected {{{{{word}}}}}")
    return Template(body, frozenset(parser.fields))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._action = self._depth = 0
        self._variables = {"", "$"}
        self.fields: set[str] = set()

    def body(self) -> tuple[_Body, str]:
        """Return texts, values and blocks up to ``end``, ``else`` or the text's end ("")."""
        body: list[str | _Expression] = []
        while (opens := self._text.find(LEFT, self._at)) >= 0:
            plain = self._text[self._at : opens]
            self._at, self._action = opens + len(LEFT), opens
            body.append(plain.rstrip(_S) if self._take(_TRIM) else plain)
            if self._take(_COMMENT):
                continue
            self._take(_SPACE)
            word = _WORD.match(self._text, self._at)
            match word[0] if word else "":
                case "end" | "else" as keyword:
                    self._take(_WORD)
                    if keyword == "end":
                        self._expect(_END)
                    return body, keyword
                case "if" | "range" as keyword:
                    self._take(_WORD)
                    body.append(self._block(keyword))
                case _:
                    body.append(self._pipeline())
                    self._expect(_END)
        body.append(self._text[self._at :])
        self._at = len(self._text)
        return body, ""

    def _block(self, keyword: str) -> _Expression:
        self._deeper()
        declared = self._take(_DECLARED) if keyword == "range" else None
        names = tuple(filter(None, declared.groups())) if declared else ()
        outside, value = self._variables, self._pipeline()
        self._expect(_END)
        self._variables = {*outside, *names}
        body, end = self.body()
        self._variables = outside
        otherwise: _Body = ()
        if end == "else" and keyword == "if" and self._take(_ELSE_IF):
            # `else if` shares the `end` of the statement it continues.
            otherwise, end = [self._block(keyword)], "end"
        elif end == "else":
            self._expect(_END)
            otherwise, end = self.body()
        if end != "end":
            raise self.error(f"unexpected {{{{{end or 'EOF'}}}}} in {keyword}")
        self._depth -= 1
        if keyword == "if":
            return lambda scope: _write(body if value(scope) else otherwise, scope)

        def loop(scope: _Scope) -> str:
            each = items(value(scope))
            for key, item in each:
                named = dict(zip(names, (key, item)[-len(names) :], strict=True)) if names else {}
                _write(body, _Scope({**scope.variables, "": item, **named}, scope.output))
            return "" if each else _write(otherwise, scope)

        return loop

    def _pipeline(self) -> _Expression:
        depth = self._depth
        value = self._command(())
        while self._take(_PIPE):
            self._deeper()
            value = self._command((value,))
        self._depth = depth
        return value

    def _command(self, piped: tuple[_Expression, ...]) -> _Expression:
        self._take(_SPACE)
        word = _WORD.match(self._text, self._at)
        name = word[0] if word else ""
        if name not in FUNCTIONS:
            if word and name not in ("true", "false") and not _OUTSIDE.match(self._text, self._at):
                raise self.error(f"function {quote(name)} not defined")
            value = self._operand()
            if piped:
                raise self._refused("a pipeline into what is no function")
            return value
        self._take(_WORD)
        pattern = _PATTERN.match(self._text, self._at)
        arguments: list[_Expression] = []
        while self._take(_ARGUMENT):
            arguments.append(self._operand())
        count = len(arguments) + len(piped)
        verbs = _VERB.findall(pattern[0]) if name == "printf" and pattern else []
        if any(verbs) or (name == "printf" and not pattern):
            raise self._refused("printf with another pattern than a text of %s and %q")
        arity = 1 + len(verbs) if name == "printf" else 2
        if count != arity:
            raise self._refused(f"{name} with {count} arguments, not {arity},")
        function, arguments = FUNCTIONS[name], [*arguments, *piped]
        return lambda scope: function(scope.output.step(), [each(scope) for each in arguments])

    def _operand(self) -> _Expression:
        operand = self._expect(_OPERAND)
        text = operand[0]
        match operand.lastgroup:
            case "raw":
                constant: str | int = text[1:-1].replace("\r", "")
            case "text":
                constant = re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], text[1:-1])
            case "truth":
                constant = text == "true"
            case "number":
                if not _INTEGER.fullmatch(text):
                    raise self._refused("numbers that are not whole and decimal")
                constant = int(text)
            case "path":
                variable, *names = text.split(".")
                if variable not in self._variables:
                    raise self._refused(f"{variable} where no range declares it")
                self.fields.update(names[:1])
                path = [name for name in names if name]
                return lambda scope: reduce(field_of, path, scope.variables[variable])
            case _:
                self._deeper()
                value = self._pipeline()
                self._expect(_CLOSING)
                self._depth -= 1
                return value
        return lambda _: constant

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        taken = pattern.match(self._text, self._at)
        self._at = taken.end() if taken else self._at
        return taken

    def _expect(self, pattern: re.Pattern[str]) -> re.Match[str]:
        if taken := self._take(pattern):
            return taken
        raise self._unexpected()

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refused(f"more than {_DEEPEST} levels")

    def _unexpected(self) -> TemplateSyntaxError:
        if outside := _OUTSIDE.match(self._text, self._at):
            return self._refused(outside[0].strip())
        self._take(_SPACE)
        text = self._text[self._at : self._at + 1]
        return self.error(f"unexpected {quote(text)} in action" if text else "unclosed action")

    def _refused(self, construct: str) -> TemplateSyntaxError:
        reason = (
            f"TemplateConstructRefused: rules cannot use {construct} in templates; write it with "
            "fields, index, if, range, printf, eq and ne"
        )
        return TemplateConstructRefused(self._text, self._action, reason)

    def error(self, reason: str) -> TemplateSyntaxError:
        return TemplateSyntaxError(self._text, self._action, reason)


def _write(body: _Body, scope: _Scope) -> str:
    """Write texts and values in their order; a block writes itself, and has none."""
    for part in body:
        scope.output.step()
        scope.output.write(part if isinstance(part, str) else show(part(scope)))
    return ""
