"""Where rules of prometheus-adapter are written: a rules file, a ConfigMap, Helm values, and the
values in a HelmRelease, in an Application or of an umbrella chart.

The result reads as a rules file, with the places where they stand in the input as far as that
can be, so that findings point into the file that people edit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

import yaml
from msgspec import Struct
from msgspec.structs import replace
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from adapter.doctor.evidence import LintFinding
from adapter.rules import config_gen
from adapter.rules.yaml_nodes import is_null, kind, nodes, root
from podscale.migrate import documents

_SECTIONS = frozenset(["rules", "externalRules", "resourceRules"])
_CHART = "prometheus-adapter"
_RULES = {  # of the chart's values: what it takes below rules
    "default": (ScalarNode, "true or false"),
    "custom": (SequenceNode, "a list"),
    "existing": (ScalarNode, "the name of a ConfigMap"),
    "external": (SequenceNode, "a list"),
    "resource": (MappingNode, "a mapping"),
}
_BESIDE = {  # what is written beside rules in error, and its key below them
    "custom": "custom", "external": "external", "externalRules": "external",
    "resourceRules": "resource",
}  # fmt: skip
_STR = "tag:yaml.org,2002:str"
_NO_RULES = "there are no rules: write rules.custom, rules.external or rules.resource"


class RulesText(Struct, frozen=True):
    text: str | Node  # a node of ``file``, where that is of another form
    file: str
    form: str  # "rules file", "ConfigMap monitoring/adapter-config", "Helm values"
    elsewhere: str = ""  # the ConfigMap that the values name instead of holding rules
    sources: str = ""  # the sources file beside them in the ConfigMap
    about: str = ""  # the object that the values are written in
    values: Mapping[str, object] = {}
    problems: Sequence[LintFinding] = ()  # of the values: what the chart drops or breaks
    defaults: int = 0  # rules of the chart itself, before those that are written

    @property
    def as_file(self) -> str:
        """The rules file by itself."""
        if isinstance(self.text, str):
            return self.text
        return str(yaml.serialize(self.text, Dumper=yaml.SafeDumper))

    def in_its_words(self, found: Sequence[LintFinding]) -> list[LintFinding]:
        """Return what was ``found`` in the rules, in the words of the form they are written in."""
        if self.form != "Helm values":
            return list(found)
        named = {f"rules[{i}]": f" (default rule {i + 1})" for i in range(self.defaults)}
        return [
            replace(each, reason=_NO_RULES)
            if each.lint == "NoRules"
            else replace(each, place=each.place + named.get(each.subject, ""))
            for each in found
        ]


def find(text: str, file: str) -> RulesText:
    """Return the rules of any form; what is no other form is taken for a rules file.

    Raises ``documents.Unreadable`` for manifests that hold none.
    """
    try:
        found = documents.objects(text, file)
    except documents.Unreadable:
        return RulesText(text, file, "rules file")  # its reader says what is wrong, and where
    if values := values_in(text, file):
        return values[0]
    maps = [each for each in found if documents.text_at(each, "kind") == "ConfigMap"]
    # Other programs have a config.yaml as well: what reads as rules goes before the name.
    for each in sorted(maps, key=lambda each: not any(map(_is_rules, _contents(each).values()))):
        rules = of_config_map(each, file, text)
        if rules is not None:
            return rules
    kinds = [documents.text_at(each, "kind") for each in found if each.get("apiVersion")]
    if maps or not kinds or len(kinds) < len(found):
        return RulesText(text, file, "rules file")
    raise documents.Unreadable(
        f"{file}: this is a {kinds[0]}, which holds no rules: give a rules file, a ConfigMap that "
        "holds one, or Helm values of prometheus-adapter"
    )


def of_config_map(manifest: documents.Object, file: str, text: str = "") -> RulesText | None:
    """Return the rules of a ConfigMap: its ``config.yaml``, or its only key that reads as some.

    ``text`` is what ``file`` holds; places in the rules are lines of it where that can be.
    """
    data = _contents(manifest)
    for key in ("config.yaml", *sorted(data)):
        content = data.get(key)
        if content is None or not (key == "config.yaml" or _is_rules(content)):
            continue
        namespace, name = documents.name_of(manifest)
        form = f"ConfigMap {namespace}/{name}" if namespace else f"ConfigMap {name}"
        sources, (line, indent) = data.get("sources.yaml", ""), _place_of(text, key, content)
        if line or not text:
            moved = "\n" * line + _indented(content, indent)
            return RulesText(moved, file or form, form, sources=sources)
        # Quoted: its own lines.
        return RulesText(content, f"{file}: {form}: {key}", form, sources=sources)
    return None


def _contents(manifest: documents.Object) -> dict[str, str]:
    data = documents.map_at(manifest, "data")
    return {key: each for key, each in data.items() if isinstance(each, str)}


def _is_rules(content: str) -> bool:
    try:
        return any(_SECTIONS & set(each) for each in documents.objects(content))
    except documents.Unreadable:
        return False


def values_in(text: str, file: str) -> list[RulesText]:
    """Return the rules of all values of the chart in ``text``, which YAML's reader has taken."""
    return [
        _of_values(values, file, about)
        for each in nodes(text)
        for about, values in ([("", each)] if _is_bare(each) else _values(each, text))
    ]


def _is_bare(document: Node) -> bool:
    """Return whether a document is values that have no rules, or none yet."""
    fields = _fields(document)
    if {"kind", _CHART} & fields.keys():
        return False
    rules, prometheus = fields.get("rules"), _fields(fields.get("prometheus"))
    is_empty = isinstance(rules, MappingNode) and not rules.value
    return is_empty or not {"url", "port", "path"}.isdisjoint(prometheus)


def _values(node: Node, text: str, about: str = "") -> Iterator[tuple[str, MappingNode]]:
    """Yield the chart's values in ``node``, each with the object that they are written in."""
    if isinstance(node, ScalarNode) and "rules:" in node.value:
        inner = _inside(node, text)
        yield from _values(inner, text, about) if isinstance(inner, MappingNode) else ()
    for each in node.value if isinstance(node, SequenceNode) else ():
        yield from _values(each, text, about)
    fields = _fields(node)
    if {"kind", "metadata"} <= fields.keys():
        names = _fields(fields["metadata"])
        named = [names[key].value for key in ("namespace", "name") if key in names]
        about = f"{fields['kind'].value} {'/'.join(named)}"
        # In annotations and history are the values of before.
        fields = {key: each for key, each in fields.items() if key not in ("metadata", "status")}
    elif isinstance(node, MappingNode) and _is_values(fields):
        yield about, node
        return
    for key, each in fields.items():
        if key == _CHART and isinstance(each, MappingNode):
            yield about, each
        else:
            yield from _values(each, text, about)


def _is_values(fields: Mapping[str, Node]) -> bool:
    rules = fields.get(_near("rules", fields))
    return isinstance(rules, MappingNode) and any(_near(key, _RULES) for key in _fields(rules))


def _near(key: str, known: Iterable[str]) -> str:
    return next(iter(get_close_matches(key, known, n=1, cutoff=0.8)), "")


def _of_values(values: Node, file: str, about: str) -> RulesText:
    """Return the rules that the chart prometheus-community/prometheus-adapter renders."""
    problems: list[LintFinding] = []

    def add(node: Node, reason: str) -> None:
        place = f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
        problems.append(LintFinding("HelmValues", "values", reason, place))

    def unknown(key: Node, of: str, known: Collection[str]) -> None:
        near = _near(key.value, known)
        hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(known)}."
        add(key, f"unknown key {key.value!r} of {of}; {hint} The chart drops it in silence")

    keys = {key.value: (key, value) for key, value in values.value}
    place, rules = keys.get(_near("rules", keys), (values, None))
    if rules is not None and place.value != "rules":
        unknown(place, "the values", ["rules"])
        rules = None
    elif not (rules is None or isinstance(rules, MappingNode) or is_null(rules)):
        add(place, f"rules is {kind(rules)}, and the chart takes a mapping")
    for key in (each for name, (each, _) in keys.items() if name in _BESIDE):
        meant = _BESIDE[key.value]
        add(
            key, f"unknown key {key.value!r} of the values: write rules.{meant}. The chart drops it"
        )
    written: dict[str, Node] = {}
    for key, value in rules.value if isinstance(rules, MappingNode) else ():
        form, words = _RULES.get(key.value, (Node, ""))
        is_text = key.value == "default" and value.style
        if not words:
            unknown(key, "rules", _RULES)
        elif _is_true(value) and (is_text or not isinstance(value, form)):
            add(key, f"rules.{key.value} is {kind(value)}, and the chart takes {words}")
        elif _is_true(value) or key.value == "default":
            written[key.value] = value
        place = key if key.value == "default" else place
    # The chart writes its default rules unless told otherwise; the same six as config-gen.
    has_defaults = _is_true(written["default"]) if "default" in written else True
    default = config_gen.default_config().rules if has_defaults else ()
    text = yaml.safe_dump({"rules": list(map(config_gen.dump_rule, default))}, sort_keys=False)
    document = _moved(next(nodes(text)), place.start_mark)
    listed = _fields(document)["rules"]
    listed.value += written["custom"].value if "custom" in written else []
    for key, section in (("external", "externalRules"), ("resource", "resourceRules")):
        if key in written:
            document.value.append((ScalarNode(_STR, section), written[key]))
    plain = documents.map_at(documents.constructed(values))
    existing = documents.text_at(plain, "rules", "existing")
    return RulesText(
        document, file, "Helm values", existing,
        about=about, values=plain, problems=problems, defaults=len(default),
    )  # fmt: skip


def _is_true(node: Node) -> bool:
    """Return whether a template takes the value for true: not null, false, 0 or empty."""
    is_plain = isinstance(node, ScalarNode) and not node.style
    is_off = is_plain and (is_null(node) or node.value.lower() in ("false", "no", "off", "0"))
    return bool(node.value) and not is_off


def _fields(node: Node | None) -> dict[str, Node]:
    pairs = node.value if isinstance(node, MappingNode) else ()
    return {str(key.value): value for key, value in pairs}


def _inside(scalar: ScalarNode, text: str) -> Node | None:
    """Return the YAML in ``scalar``, with its places in ``text`` if it stands there as a block."""
    line = scalar.start_mark.line + 1
    if scalar.style != "|":
        found = root(scalar.value)
        return _moved(found, scalar.start_mark) if isinstance(found, Node) else None
    pairs = zip(text.splitlines()[line:], scalar.value.splitlines(), strict=False)
    indent = next((a.removesuffix(b) for a, b in pairs if b.strip()), "")
    found = root("\n" * line + _indented(scalar.value, indent))
    return found if isinstance(found, Node) else None


def _moved(node: Node, mark: yaml.Mark) -> Node:
    """Return the node with everything in it at one place."""
    node.start_mark = mark
    for each in () if isinstance(node, ScalarNode) else node.value:
        for part in each if isinstance(each, tuple) else (each,):
            _moved(part, mark)
    return node


def _place_of(text: str, key: str, content: str) -> tuple[int, str]:
    """Return the lines before ``content``, where ``key`` introduces it as a block, and what its
    lines begin with there; else 0."""
    written = text.splitlines()
    lines = [line.strip() for line in written]
    wanted = [line.strip() for line in content.splitlines()]
    for number, line in enumerate(lines, 1):
        found, colon, rest = line.partition(":")
        is_block = found.strip("\"'") == key and colon and rest.strip().startswith("|")
        if is_block and lines[number : number + len(wanted)] == wanted:
            pairs = zip(written[number:], content.splitlines(), strict=False)
            return number, next((a.removesuffix(b) for a, b in pairs if b.strip()), "")
    return 0, ""


def _indented(content: str, indent: str) -> str:
    """Return the same YAML with every line moved to the right, but for marks of documents."""
    return "".join(
        line if line.startswith(("---", "...", "%")) or not line.strip() else indent + line
        for line in content.splitlines(keepends=True)
    )
