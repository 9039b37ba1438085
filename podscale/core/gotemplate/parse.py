"""From tokens to the tree (``text/template/parse``)."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from podscale.core.goquote import quote
from podscale.core.gotemplate import literals
from podscale.core.gotemplate.errors import TemplateSyntaxError
from podscale.core.gotemplate.syntax import KEYWORDS, Token, tokens
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

T = TypeVar("T")

_OPERANDS = ("word", "field", "variable", "number", "string", "character", "(")
_NOT_CALLABLE = (TemplateConstant, Dot, Nil)


def read(
    text: str, left: str, right: str, name: str, functions: Collection[str]
) -> dict[str, Sequence[Statement]]:
    """Return the statements of ``name`` and of every template defined in ``text``."""
    try:
        return _Parser(text, left, right, name, functions).trees()
    except RecursionError:
        raise TemplateSyntaxError(name, 1, "max expression depth exceeded") from None


class _Parser:
    def __init__(
        self, text: str, left: str, right: str, name: str, functions: Collection[str]
    ) -> None:
        self._name = name
        self._functions = functions
        self._tokens = list(tokens(text, left, right, name))
        self._at = 0
        self._variables = ["$"]
        self._loops = 0
        self._trees: dict[str, Sequence[Statement]] = {}

    def trees(self) -> dict[str, Sequence[Statement]]:
        root: list[Statement] = []
        while (token := self._next()).kind != "end":
            if token.kind == "text":
                root.append(TemplateText(token.text))
            elif self._peek_past_space().text == "define":
                self._next_past_space()
                self._definition()
            else:
                statement = self._action()
                if isinstance(statement, str):
                    raise self._error(f"unexpected {{{{{statement}}}}}")
                root.append(statement)
        self._add(self._name, root)
        return self._trees

    def _definition(self) -> None:
        name = self._template_name("define clause")
        if (token := self._next_past_space()).kind != "right":
            raise self._unexpected(token, "define clause")
        self._own_template(name, "define clause")

    def _own_template(self, name: str, context: str) -> None:
        outer = self._variables, self._loops
        self._variables, self._loops = ["$"], 0
        body, end = self._statements()
        if end != "end":
            raise self._error(f"unexpected {{{{{end}}}}} in {context}")
        self._variables, self._loops = outer
        self._add(name, body)

    def _add(self, name: str, body: Sequence[Statement]) -> None:
        known = self._trees.get(name)
        if known is None or _is_blank(known):
            self._trees[name] = body
        elif not _is_blank(body):
            raise self._error(f"multiple definition of template {quote(name)}")

    def _statements(self) -> tuple[list[Statement], str]:
        """Return the statements up to ``end`` or ``else``, and which of the two it was."""
        found: list[Statement] = []
        while (token := self._next()).kind != "end":
            if token.kind == "text":
                found.append(TemplateText(token.text))
                continue
            if token.kind != "left":  # `else with` inside an `if`
                raise self._unexpected(token, "input")
            statement = self._action()
            if isinstance(statement, str):
                return found, statement
            found.append(statement)
        raise self._error("unexpected EOF")

    def _action(self) -> Statement | str:
        """Return the statement after a left delimiter, or the word ``end`` or ``else``."""
        token = self._next_past_space()
        match token.text if token.kind == "word" else "":
            case "if" | "with" | "range" as word:
                return self._control(word)
            case "break" | "continue" as word:
                if (following := self._next_past_space()).kind != "right":
                    raise self._unexpected(following, f"{{{{{word}}}}}")
                if not self._loops:
                    raise self._error(f"{{{{{word}}}}} outside {{{{range}}}}")
                return Jump(word)
            case "end":
                if (following := self._next_past_space()).kind != "right":
                    raise self._unexpected(following, "end")
                return "end"
            case "else":
                if self._peek_past_space().text in ("if", "with"):
                    return "else"
                if (following := self._next_past_space()).kind != "right":
                    raise self._unexpected(following, "else")
                return "else"
            case "block":
                name = self._template_name("block clause")
                pipe = self._pipeline("block clause", "right")
                self._own_template(name, "block clause")
                return Call(name, pipe)
            case "template":
                name = self._template_name("template clause")
                if self._peek_past_space().kind == "right":
                    self._next_past_space()
                    return Call(name, None)
                return Call(name, self._pipeline("template clause", "right"))
        self._at -= 1
        return Action(self._pipeline("command", "right"))

    def _control(self, word: str) -> Statement:
        scope = len(self._variables)
        pipe = self._pipeline(word, "right")
        self._loops += word == "range"
        body, end = self._statements()
        self._loops -= word == "range"
        otherwise: list[Statement] = []
        if end == "else":
            if word != "range" and self._peek_past_space().text == word:
                # `else if` shares the `end` of the statement it continues.
                self._next_past_space()
                otherwise = [self._control(word)]
            else:
                otherwise, end = self._statements()
                if end != "end":
                    raise self._error("expected end; found {{else}}")
        del self._variables[scope:]
        if word == "range":
            return Range(pipe, body, otherwise)
        return If(pipe, body, otherwise, word == "with")

    def _template_name(self, context: str) -> str:
        token = self._next_past_space()
        if token.kind != "string":
            raise self._unexpected(token, context)
        return self._literal(literals.unquote, token)

    def _pipeline(self, context: str, closing: str) -> Pipe:
        variables, assigns = self._declarations(context)
        commands: list[tuple[Expression, ...]] = []
        while (token := self._peek_past_space()).kind != closing:
            if token.kind not in _OPERANDS or (token.text in KEYWORDS and token.text != "nil"):
                self._next_past_space()
                raise self._unexpected(token, context)
            commands.append(self._command())
        self._next_past_space()
        if not commands:
            raise self._error(f"missing value for {context}")
        for stage, command in enumerate(commands[1:], start=2):
            if isinstance(command[0], _NOT_CALLABLE):
                raise self._error(f"non executable command in pipeline stage {stage}")
        return Pipe(tuple(commands), tuple(variables), assigns)

    def _declarations(self, context: str) -> tuple[list[str], bool]:
        variables: list[str] = []
        while self._peek_past_space().kind == "variable":
            start = self._at
            name = self._next_past_space().text
            following = self._peek_past_space()
            if following.kind in (":=", "="):
                self._next_past_space()
                variables.append(name)
                self._variables.append(name)
                return variables, following.kind == "="
            if following.kind != ",":
                self._at = start
                break
            self._next_past_space()
            variables.append(name)
            self._variables.append(name)
            if context != "range" or len(variables) > 1:
                raise self._error(f"too many declarations in {context}")
            if self._peek_past_space().kind not in ("variable", "right", ")"):
                raise self._error("range can only initialize variables")
        return variables, False

    def _command(self) -> tuple[Expression, ...]:
        arguments: list[Expression] = []
        while True:
            operand = self._operand()
            if operand is not None:
                arguments.append(operand)
            token = self._next()
            if token.kind in ("right", ")"):
                self._at -= 1
                break
            if token.kind == "|":
                break
            if token.kind != "space":
                raise self._unexpected(token, "operand")
        if not arguments:
            raise self._error("empty command")
        return tuple(arguments)

    def _operand(self) -> Expression | None:
        node = self._term()
        if node is None:
            return None
        names: list[str] = []
        while (token := self._peek()).kind == "field" and token.text != ".":
            names.append(self._next().text[1:])
        if not names:
            return node
        if isinstance(node, Field):
            return Field((*node.names, *names))
        if isinstance(node, Variable):
            return Variable(node.name, tuple(names))
        if isinstance(node, _NOT_CALLABLE):
            raise self._error("unexpected . after term")
        return Chain(node, tuple(names))

    def _term(self) -> Expression | None:
        token = self._peek_past_space()
        self._next_past_space()
        match token.kind:
            case "word" if token.text == "nil":
                return Nil()
            case "word" if token.text in ("true", "false"):
                return TemplateConstant(token.text == "true")
            case "word" if token.text not in KEYWORDS:
                if token.text not in self._functions:
                    raise self._error(f"function {quote(token.text)} not defined")
                return Function(token.text)
            case "field":
                return Dot() if token.text == "." else Field((token.text[1:],))
            case "variable":
                if token.text not in self._variables:
                    raise self._error(f"undefined variable {quote(token.text)}")
                return Variable(token.text)
            case "number":
                return TemplateConstant(self._literal(literals.number, token))
            case "character":
                return TemplateConstant(self._literal(literals.character, token))
            case "string":
                return TemplateConstant(self._literal(literals.unquote, token))
            case "(":
                return self._pipeline("parenthesized pipeline", ")")
        self._at -= 1
        return None

    def _literal(self, read: Callable[[str], T], token: Token) -> T:
        try:
            return read(token.text)
        except literals.LiteralProblem as problem:
            raise self._error(str(problem)) from None

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _peek_past_space(self) -> Token:
        ahead = self._tokens[self._at]
        return self._tokens[self._at + 1] if ahead.kind == "space" else ahead

    def _next_past_space(self) -> Token:
        token = self._next()
        return self._next() if token.kind == "space" else token

    def _unexpected(self, token: Token, context: str) -> TemplateSyntaxError:
        return self._error(f"unexpected {token} in {context}")

    def _error(self, reason: str) -> TemplateSyntaxError:
        return TemplateSyntaxError(self._name, self._tokens[max(self._at - 1, 0)].line, reason)


def _is_blank(body: Sequence[Statement]) -> bool:
    return all(isinstance(part, TemplateText) and not part.text.strip() for part in body)
