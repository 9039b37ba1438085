"""Random templates: mostly well-formed, with the mistakes people make in between."""

from random import Random

ATOMS = (
    *(".", "$", ".Series", ".GroupBy", ".GroupBySlice", ".LabelValuesByName"),
    *(".LabelValuesByName.pod", ".LabelValuesByName.nope", ".LabelValuesByName.nope.x"),
    *(".Nope", ".Series.x", "$x", "$y", "1", "2", "0", "-1", "1.5", "0x1f", "'a'"),
    *('"pod"', r'"x\ty"', "`raw`", '"%s-%q"', "true", "false", "nil", '"é"', '""'),
    *("(len .Series)", "(index .GroupBySlice 0)", '(printf "%v" .Series)', "(eq 1 1)"),
    *("(slice .Series 1 3)", "(print .Series 1 2)", '(index .LabelValuesByName "pod")'),
    *("(.LabelValuesByName).pod", "(1)", "($)", "$.Series", ".LabelMatchers"),
)
USED = (  # by rules
    *(".", ".Series", ".LabelMatchers", ".GroupBy", ".GroupBySlice", ".LabelValuesByName.pod"),
    *("$x", "$.Series", "1", "0", '"pod"', "true", "`raw`", "(index .GroupBySlice 0)"),
    *('(index .LabelValuesByName "pod")', '(printf "%s" .Series)', '(eq .Series "x")'),
)
FUNCTIONS = (
    *("len", "index", "slice", "print", "printf", "println", "html", "js", "urlquery"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "call", "toUpper"),
)
ARGUMENTS = {"len": 1, "not": 1, "html": 1, "js": 1, "urlquery": 1}
TEXTS = ("text", "  \n x ", " ", "{{.Series}}", "1 >> 2", "a<b")
ODDITIES = (
    *("/* c */", "- /* c */", "/* c */ -", "break", "continue", "end", "else", "nil"),
    *('template "q" .', 'template "q"', 'define "q"', '"a" | "b"', '"unterminated'),
    *("(", ")", ".a.b", "$x.y", ".Series | len", '"a"."b"', "1.x", "|", "len", "range", "if"),
    *("$x:", "@", "template 1", 'block "b" .Series', '.Series|printf "%s"'),
)
HEADS = (
    *("if", "if", "if", "range", "range", "range $x :=", "range $x, $y :=", "range $y, $x :="),
    *("if", "with", "if", "range", "range $x :=", "range $x, $y :="),
    *("with $x :=", "if $x :=", 'block "b0"', 'block "b1"', 'define "q"'),
)
USED_FUNCTIONS = (
    *("index .GroupBySlice 0", 'index .LabelValuesByName "pod"', "printf `%s|%q` .Series `a`"),
    *("eq 1 0", "ne .Series .GroupBy", "eq .Series .Series"),
)
RANGED = (".GroupBySlice", ".LabelValuesByName", "$", ".Series", "3")
VERBS = (
    "%s",
    "%s",
    "%q",
    "%s",
    "%q",
    "%s",
    "%v",
    "%d",
    "%%",
    "%5s",
    "%T",
    "%x",
    "%!",
    "%+v",
    "%[1]s",
)
PRINTED = (
    *(
        ".Series",
        ".GroupBy",
        "`a`",
        ".GroupBySlice",
        ".LabelValuesByName",
        "1",
        "-255",
        "0",
        "true",
        "nil",
    ),
    *(r'"hé\"q"', '"a`b"', "'x'", '""', "97", "1.5"),
)


def template(random: Random, depth: int = 0) -> str:
    """Return a random template."""
    return "".join(_part(random, depth) for _ in range(random.randint(1, 3)))


def printf(random: Random) -> str:
    """Return a random ``printf`` action, mostly of verbs that rules can use."""
    verbs = [random.choice(VERBS[: random.choice((6, 6, 6, 16))]) for _ in range(3)]
    count = 3 - verbs.count("%%") if random.random() < 0.8 else random.randint(0, 4)
    arguments = " ".join(random.choice(PRINTED[: random.choice((3, 16))]) for _ in range(count))
    return f"<<printf `{random.choice(('', ' a', '|')).join(verbs)}` {arguments}>>"


def _part(random: Random, depth: int) -> str:
    kind = random.random()
    if kind < 0.25:
        return random.choice(TEXTS)
    if kind < 0.55:
        return _action(random, _pipe(random))
    if kind < 0.57:
        target = random.choice(("$x := ", "$y:=", "$x = ", "$x, $y := "))
        return _action(random, target + _pipe(random))
    if kind < 0.6 or depth >= 3:
        return _action(random, random.choice(ODDITIES))
    return _control(random, depth)


def _control(random: Random, depth: int) -> str:
    head = random.choice(HEADS)
    if "range" in head and random.random() < 0.8:
        opening = f"{head} {random.choice(RANGED)}"
    else:
        opening = head if "define" in head else f"{head} {_pipe(random)}"
    text = _action(random, opening) + template(random, depth + 1)
    if random.random() < 0.3:
        otherwise = ("else", "else", f"else if {_pipe(random)}", f"else with {_pipe(random)}")
        text += _action(random, random.choice(otherwise)) + template(random, depth + 1)
    if "range" in head and random.random() < 0.3:
        text += _action(random, random.choice(("break", "continue")))
    return text + (_action(random, "end") if random.random() < 0.97 else "")


def _pipe(random: Random) -> str:
    stages = [_command(random) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    return random.choice(("|", " | ")).join(stages)


def _command(random: Random) -> str:
    if random.random() < 0.7:
        return random.choice(random.choice((USED, USED, USED_FUNCTIONS, ATOMS)))
    name = random.choice(FUNCTIONS)
    count = ARGUMENTS.get(name, 2) if random.random() < 0.9 else random.randint(0, 3)
    return " ".join([name, *(random.choice(ATOMS) for _ in range(count))])


def _action(random: Random, body: str) -> str:
    left = random.choice(("<<", "<<", "<<", "<< ", "<<- "))
    right = random.choice((">>", ">>", ">>", " >>", " ->>"))
    return left + body + right
