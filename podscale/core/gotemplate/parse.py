"""From a template's text to what writes it, as Go's ``text/template/parse`` reads it."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from msgspec import Struct

from podscale.core.goquote import quote
from podscale.core.gotemplate import functions

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
    variables: Mapping[str, functions.Operand]  # by name; "": the dot
    output: functions.Output


_Expression = Callable[[_Scope], functions.Operand]
_Body = Sequence[str | _Expression]


class Template(Struct, frozen=True):
    """A template that has been read."""

    body: _Body
    fields: frozenset[str]  # the first name of each path in it

    def render(self, fields: Mapping[str, functions.Value]) -> str:
        """Return the text; raises ``TemplateExecutionError`` for an unknown field or a bad call."""
        dot, output = functions.TemplateFields(fields), functions.Output()
        _write(self.body, _Scope({"": dot, "$": dot}, output))
        return "".join(output.written)


def parse(text: str) -> Template:
    """Return the template; raises ``TemplateSyntaxError``, also for what rules cannot use."""
    return _Parser(text).template()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._action = self._depth = 0
        self._variables = {"", "$"}
        self._fields: set[str] = set()

    def template(self) -> Template:
        body, word = self._body()
        if word:
            raise self._error(f"unexpected {{{{{word}}}}}")
        return Template(body, frozenset(self._fields))

    def _body(self) -> tuple[_Body, str]:
        """Return texts, values and blocks up to ``end``, ``else`` or the text's end ("")."""
        body: list[str | _Expression] = []
        while (opens := self._text.find(functions.LEFT, self._at)) >= 0:
            plain = self._text[self._at : opens]
            self._at, self._action = opens + len(functions.LEFT), opens
            body.append(plain.rstrip(_S) if self._take(_TRIM) else plain)
            if self._take(_COMMENT):
                continue
            self._take(_SPACE)
            word = _WORD.match(self._text, self._at)
            match word[0] if word else "":
                case "end" | "else" as keyword:
                    self._take(_WORD)
                    if keyword == "end":
                        self._close()
                    return body, keyword
                case "if" | "range" as keyword:
                    self._take(_WORD)
                    body.append(self._block(keyword))
                case _:
                    body.append(self._pipeline())
                    self._close()
        body.append(self._text[self._at :])
        self._at = len(self._text)
        return body, ""

    def _block(self, keyword: str) -> _Expression:
        self._deeper()
        outside, names = self._variables, ()
        if keyword == "range" and (declared := self._take(_DECLARED)):
            names = tuple(filter(None, declared.groups()))
        value = self._pipeline()
        self._close()
        self._variables = {*outside, *names}
        body, end = self._body()
        self._variables = outside
        otherwise: _Body = ()
        if end == "else" and keyword == "if" and self._take(_ELSE_IF):
            # `else if` shares the `end` of the statement it continues.
            otherwise, end = [self._block(keyword)], "end"
        elif end == "else":
            self._close()
            otherwise, end = self._body()
        if end != "end":
            raise self._error(f"unexpected {{{{{end or 'EOF'}}}}} in {keyword}")
        self._depth -= 1
        if keyword == "if":
            return lambda scope: _write(body if value(scope) else otherwise, scope)
        return _loop(value, names, body, otherwise)

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
        if name not in functions.FUNCTIONS:
            if word and name not in ("true", "false") and not _OUTSIDE.match(self._text, self._at):
                raise self._error(f"function {quote(name)} not defined")
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
        function, arguments = functions.FUNCTIONS[name], [*arguments, *piped]
        return lambda scope: function(scope.output.step(), [each(scope) for each in arguments])

    def _operand(self) -> _Expression:
        operand = self._take(_OPERAND)
        if operand is None:
            raise self._unexpected()
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
                self._fields.update(names[:1])
                path = [name for name in names if name]
                return lambda scope: reduce(functions.field_of, path, scope.variables[variable])
            case _:
                self._deeper()
                value = self._pipeline()
                if not self._take(_CLOSING):
                    raise self._unexpected()
                self._depth -= 1
                return value
        return lambda _: constant

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        taken = pattern.match(self._text, self._at)
        self._at = taken.end() if taken else self._at
        return taken

    def _close(self) -> None:
        if not self._take(_END):
            raise self._unexpected()

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refused(f"more than {_DEEPEST} levels")

    def _unexpected(self) -> functions.TemplateSyntaxError:
        outside = _OUTSIDE.match(self._text, self._at)
        if outside:
            return self._refused(outside[0].strip())
        self._take(_SPACE)
        text = self._text[self._at : self._at + 1]
        return self._error(f"unexpected {quote(text)} in action" if text else "unclosed action")

    def _refused(self, construct: str) -> functions.TemplateSyntaxError:
        return functions.TemplateConstructRefused(self._text, self._action, construct)

    def _error(self, reason: str) -> functions.TemplateSyntaxError:
        return functions.TemplateSyntaxError(self._text, self._action, reason)


def _loop(value: _Expression, names: Sequence[str], body: _Body, otherwise: _Body) -> _Expression:
    def write(scope: _Scope) -> str:
        each = functions.items(value(scope))
        for key, item in each:
            named = dict(zip(names, (key, item)[-len(names) :], strict=True)) if names else {}
            _write(body, _Scope({**scope.variables, "": item, **named}, scope.output))
        return "" if each else _write(otherwise, scope)

    return write


def _write(body: _Body, scope: _Scope) -> str:
    """Write texts and values in their order; a block writes itself, and has none."""
    for part in body:
        scope.output.step()
        scope.output.write(part if isinstance(part, str) else functions.show(part(scope)))
    return ""
