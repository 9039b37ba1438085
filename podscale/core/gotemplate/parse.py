"""From tokens to the nodes that write the template (``text/template/parse``)."""

import re
from collections.abc import Mapping

from podscale.core.goquote import quote
from podscale.core.gotemplate.errors import TemplateSyntaxError
from podscale.core.gotemplate.functions import BUILTINS, SHORT_CIRCUIT, verbs
from podscale.core.gotemplate.nodes import (
    Body,
    FieldPath,
    IfStatement,
    Loop,
    Pipeline,
    PlainText,
    Template,
    TemplateCall,
    TemplateConstant,
    TemplateExpression,
    TemplateFunction,
    TemplateStatement,
)
from podscale.core.gotemplate.syntax import Token, tokens

_OUTSIDE = frozenset({"block", "break", "call", "continue", "nil", "println"})  # Go has them
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")


def parse(text: str, left: str = "<<", right: str = ">>", name: str = "template") -> Template:
    """Return the template; raises ``TemplateSyntaxError``, also for what rules cannot use.

    ``name`` appears in messages and is what ``template`` calls the whole by.
    """
    try:
        return Template(name, _Parser(text, left, right, name).templates())
    except RecursionError:
        raise TemplateSyntaxError(name, 1, "max expression depth exceeded") from None


class _Parser:
    def __init__(self, text: str, left: str, right: str, name: str) -> None:
        self._name = name
        self._tokens = list(tokens(text, left, right, name))
        self._at = 0
        self._variables = ["$"]
        self._templates: dict[str, Body] = {}

    def templates(self) -> Mapping[str, Body]:
        body, word = self._body()
        while word == "define":
            self._define()
            more, word = self._body()
            body = [*body, *more]
        if word:
            raise self._error(f"unexpected {{{{{word}}}}}")
        if self._name in self._templates:
            raise self._error(f"multiple definition of template {quote(self._name)}")
        return {**self._templates, self._name: body}

    def _define(self) -> None:
        name = self._string("define clause")
        self._close("define clause")
        outer, self._variables = self._variables, ["$"]
        body, word = self._body()
        if word != "end":
            raise self._error(f"unexpected {{{{{word or 'EOF'}}}}} in define clause")
        if name in self._templates:
            raise self._error(f"multiple definition of template {quote(name)}")
        self._templates[name] = body
        self._variables = outer

    def _body(self) -> tuple[list[TemplateStatement], str]:
        """Return the statements up to ``end``, ``else``, ``define`` or the text's end ("")."""
        found: list[TemplateStatement] = []
        while (token := self._next()).kind != "end":
            if token.kind == "text":
                found.append(PlainText(token.text))
                continue
            match self._peek().text if self._peek().kind == "word" else "":
                case "define" as word:
                    self._next()
                    return found, word
                case "end" as word:
                    self._next()
                    self._close(word)
                    return found, word
                case "else" as word:
                    self._next()
                    return found, word
                case "if" | "with" | "range" as word:
                    self._next()
                    found.append(self._control(word))
                case "template":
                    self._next()
                    name = self._string("template clause")
                    is_bare = self._peek().kind == "right"
                    found.append(TemplateCall(name, None if is_bare else self._pipeline()))
                    self._close("template clause")
                case _:
                    found.append(self._pipeline(most=1))
                    self._close("command")
        return found, ""

    def _control(self, word: str) -> TemplateStatement:
        scope = len(self._variables)
        pipeline = self._pipeline(most=2 if word == "range" else 1)
        self._close(word)
        body, end = self._body()
        otherwise: list[TemplateStatement] = []
        if end == "else":
            following = self._peek()
            if following.kind == "word" and following.text == word == "if":
                # `else if` shares the `end` of the statement it continues.
                self._next()
                otherwise, end = [self._control(word)], "end"
            else:
                self._close("else")
                otherwise, end = self._body()
        if end != "end":
            raise self._error(f"unexpected {{{{{end or 'EOF'}}}}} in {word}")
        del self._variables[scope:]
        if word == "range":
            return Loop(pipeline, body, otherwise)
        return IfStatement(pipeline, body, otherwise, word == "with")

    def _pipeline(self, *, most: int = 0) -> Pipeline:
        """Return the pipeline that follows, which may declare ``most`` variables."""
        start = self._at
        names: list[str] = []
        while len(names) < most and self._peek().kind == "variable":
            names.append(self._next().text)
            following = self._next().text
            if following == ":=":
                self._variables += names
                return Pipeline(self._expression(), names)
            if following == "=":
                raise self._error("rules can declare a variable once, with :=, and not assign it")
            if following != ",":
                break
        self._at = start
        return Pipeline(self._expression())

    def _expression(self) -> TemplateExpression:
        value = self._command(None)
        while self._peek().text == "|":
            self._next()
            value = self._command(value)
        return value

    def _command(self, piped: TemplateExpression | None) -> TemplateExpression:
        token = self._peek()
        is_function = token.kind == "word" and token.text not in ("true", "false")
        if not is_function:
            value = self._operand()
            if piped is not None:
                raise self._error("non executable command in pipeline: only functions take values")
            if self._peek().kind not in ("right", "end") and self._peek().text not in "|),":
                raise self._error(f"can't give argument to non-function {token}")
            return value
        name = self._next().text
        if name in _OUTSIDE:
            raise self._error(f"rules cannot use {quote(name)} of Go's templates")
        if name not in BUILTINS and name not in SHORT_CIRCUIT:
            raise self._error(f"function {quote(name)} not defined")
        arguments: list[TemplateExpression] = []
        while self._tokens[self._at].kind == "space" and self._peek().kind not in ("right", "end"):
            if self._peek().text in ("|", ")"):
                break
            arguments.append(self._operand())
        self._check(name, arguments, len(arguments) + (piped is not None))
        return TemplateFunction(name, arguments, piped)

    def _check(self, name: str, arguments: list[TemplateExpression], count: int) -> None:
        function = BUILTINS.get(name)
        least, most = (1, None) if function is None else (function.least, function.most)
        if name == "printf":
            pattern = arguments[0] if arguments else None
            if not isinstance(pattern, TemplateConstant) or not isinstance(pattern.value, str):
                raise self._error("printf in rules takes its pattern as a constant text")
            try:
                least = most = 1 + len(verbs(pattern.value))
            except ValueError as error:
                raise self._error(str(error)) from None
        if count < least or (most is not None and count > most):
            want = least if most == least else f"{least} to {most}" if most else f"at least {least}"
            raise self._error(f"wrong number of args for {name}: want {want} got {count}")

    def _operand(self) -> TemplateExpression:
        token = self._next()
        match token.kind:
            case "word" if token.text in ("true", "false"):
                return TemplateConstant(token.text == "true")
            case "field":
                names = [token.text[1:]] if len(token.text) > 1 else []
                return FieldPath(None, names + (self._names() if names else []))
            case "variable":
                if token.text not in self._variables:
                    raise self._error(f"undefined variable {quote(token.text)}")
                return FieldPath(token.text, self._names())
            case "number":
                if not _INTEGER.fullmatch(token.text):
                    raise self._error(f"rules can write whole decimal numbers, not {token}")
                return TemplateConstant(int(token.text))
            case "string":
                return TemplateConstant(self._unquoted(token.text))
            case "symbol" if token.text == "(":
                value = self._expression()
                if (closing := self._next()).text != ")":
                    raise self._error(f"unexpected {closing}: unclosed left paren")
                if self._tokens[self._at].kind == "field":
                    raise self._error("rules cannot take a field of an expression in parentheses")
                return value
            case "word":
                raise self._error(f"{quote(token.text)} is no value here; a call needs parentheses")
            case _:
                raise self._error(f"missing value, found {token}")

    def _names(self) -> list[str]:
        names: list[str] = []
        while (token := self._tokens[self._at]).kind == "field" and len(token.text) > 1:
            names.append(self._next().text[1:])
        return names

    def _string(self, context: str) -> str:
        token = self._next()
        if token.kind != "string":
            raise self._error(f"unexpected {token} in {context}")
        return self._unquoted(token.text)

    def _unquoted(self, written: str) -> str:
        if written.startswith("`"):
            return written[1:-1].replace("\r", "")

        def replace(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                raise self._error(f"rules can escape {' '.join(_ESCAPES)} in texts, not {found[1]}")
            return _ESCAPES[found[1]]

        return re.sub(r"\\(.)", replace, written[1:-1])

    def _close(self, context: str) -> None:
        token = self._next()
        if token.kind != "right":
            raise self._error(f"unexpected {token} in {context}")

    def _peek(self) -> Token:
        token = self._tokens[self._at]
        return self._tokens[self._at + 1] if token.kind == "space" else token

    def _next(self) -> Token:
        token = self._peek()
        self._at += 2 if self._tokens[self._at].kind == "space" else 1
        self._at = min(self._at, len(self._tokens) - 1)
        return token

    def _error(self, reason: str) -> TemplateSyntaxError:
        return TemplateSyntaxError(self._name, self._tokens[max(self._at - 1, 0)].line, reason)
