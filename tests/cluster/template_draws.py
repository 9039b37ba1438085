"""Random Go templates for metricsQuery: grown from its grammar, some of them broken.

Of what rules can use, and now and then something else of Go's.
"""

from random import Random

_FIELDS = (".Series", ".LabelMatchers", ".GroupBy", ".GroupBySlice", ".LabelValuesByName")
_TEXTS = (
    "sum(", ") by (", "rate(", "[5m])", "{", "}", ',x="y"', " ", "\n", "{{.X}}", ">>", "<", "日",
)  # fmt: skip
_LITERALS = (
    '"pod"', '"namespace"', '"a"', '""', "`raw`", '"\\té"', "0", "1", "2", "-1", "true", "false",
)  # fmt: skip
_FUNCTIONS = ("index", "printf", "eq", "ne")
_OTHERS = ("len", "print", "html", "js", "urlquery", "not", "and", "or", "lt", "slice")
_FORMATS = ('"%s"', '"%q"', '"%s %s"', '"%s|"')
_COUNTS = {"len": 1, "not": 1, "index": 2, "slice": 2, "eq": 2, "ne": 2, "lt": 2}


class Templates:
    """A template's text, grown from one random source."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._variables: list[str] = []

    def text(self, depth: int = 2) -> str:
        """Return a list of texts and actions."""
        kept = len(self._variables)
        parts = [self._part(depth) for _ in range(self._random.choice((1, 1, 2, 3)))]
        del self._variables[kept:]
        return "".join(parts)

    def _part(self, depth: int) -> str:
        match self._random.randrange(10 if depth else 5):
            case 0 | 1:
                return self._random.choice(_TEXTS)
            case 2 | 3 | 4:
                return self._action(self._pipeline(depth))
            case 5 if self._random.random() < 0.1:
                name = self._random.choice("xyz")
                declared = self._action(f"${name} := {self._pipeline(depth)}")
                self._variables.append(name)
                return declared
            case 6:
                otherwise = self._random.choice(("", self._action("else") + self.text(depth - 1)))
                body = self.text(depth - 1)
                return self._block(f"if {self._pipeline(depth)}", body + otherwise)
            case 7:
                return self._range(depth)
            case 8 if self._random.random() < 0.1:
                body = self.text(depth - 1)
                return self._block(
                    f"with {self._pipeline(depth)}",
                    body + self._random.choice(("", self._action("else") + self.text(depth - 1))),
                )
            case 5 | 8:
                return self._action(self._command(depth))
            case _:
                return self._random.choice(
                    (
                        "<</* why */>>",
                        "<<- /* why */ ->>",
                        "<<- /* why */ ->>",
                        "<</* why */>>",
                        "<<end>>",
                        "<<",
                        "<<.>>",
                    )
                )

    def _range(self, depth: int) -> str:
        source = self._random.choice((".GroupBySlice", ".LabelValuesByName", self._pipeline(depth)))
        names = self._random.choice(((), ("v",), ("k", "v")))
        head = ", ".join(f"${each}" for each in names)
        kept = len(self._variables)
        self._variables += names
        body = self.text(depth - 1)
        del self._variables[kept:]
        if self._random.random() < 0.3:
            body += self._action("else") + self.text(depth - 1)
        return self._block(f"range {head} := {source}" if head else f"range {source}", body)

    def _block(self, head: str, body: str) -> str:
        return self._action(head) + body + self._action("end")

    def _action(self, inside: str) -> str:
        left = self._random.choice(("<<", "<<", "<<", "<< ", "<<- "))
        right = self._random.choice((">>", ">>", ">>", " >>", " ->>"))
        return left + inside + right

    def _pipeline(self, depth: int) -> str:
        commands = [self._command(depth)]
        while self._random.random() < 0.2:
            commands.append(self._random.choice(('printf "%s"', 'printf "%q|"', "eq 1")))
        return " | ".join(commands)

    def _command(self, depth: int) -> str:
        if self._random.random() < 0.45:
            return self._operand(depth)
        name = self._random.choice(_FUNCTIONS if self._random.random() < 0.97 else _OTHERS)
        count = _COUNTS.get(name, self._random.choice((1, 1, 2, 2, 3)))
        pattern = self._random.choice(_FORMATS)
        if name == "printf":
            count = pattern.replace("%%", "").count("%")
        arguments = [self._operand(depth) for _ in range(count)]
        if name == "printf":
            arguments.insert(0, pattern)
        if name in ("index", "slice") and self._random.random() < 0.7:
            source = self._random.choice((".LabelValuesByName", ".GroupBySlice", ".Series"))
            index = self._random.choice(('"pod"', '"namespace"', '"a"', "0", "1", "$x"))
            arguments = [source, index][: 1 + (self._random.random() < 0.9)]
        return " ".join((name, *arguments))

    def _operand(self, depth: int) -> str:
        match self._random.randrange(8):
            case 0:
                return self._random.choice(_LITERALS)
            case 1 if self._variables:
                return "$" + self._random.choice(self._variables)
            case 2 if depth:
                return f"({self._pipeline(depth - 1)})"
            case 3:
                return self._random.choice(
                    (".", "$", "$.Series", ".LabelValuesByName.pod", ".Nope")
                )
            case _:
                return self._random.choice(_FIELDS)
