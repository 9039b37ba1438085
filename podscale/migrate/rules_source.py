"""Where rules of prometheus-adapter are written: a rules file, a ConfigMap, Helm values.

The result is always the text of a rules file, with the lines where they stand in the
input as far as that can be, so that findings point into the file that people edit.
"""

import yaml
from msgspec import Struct

from adapter.rules import config_gen
from podscale.migrate import documents

_SECTIONS = frozenset(["rules", "externalRules", "resourceRules"])


class RulesText(Struct, frozen=True):
    text: str
    file: str
    form: str  # "rules file", "ConfigMap monitoring/adapter-config", "Helm values"
    elsewhere: str = ""  # the ConfigMap that the values name instead of holding rules
    sources: str = ""  # the sources file beside them in the ConfigMap


def find(text: str, file: str) -> RulesText:
    """Return the rules of any form; what is no other form is taken for a rules file."""
    try:
        found = documents.objects(text, file)
    except documents.Unreadable:
        return RulesText(text, file, "rules file")  # its reader says what is wrong, and where
    maps = [each for each in found if documents.text_at(each, "kind") == "ConfigMap"]
    # Other programs have a config.yaml as well: what reads as rules goes before the name.
    for each in sorted(maps, key=lambda each: not any(map(_is_rules, _contents(each).values()))):
        rules = of_config_map(each, file, text)
        if rules is not None:
            return rules
    if len(found) == 1 and _is_values(found[0]):
        return of_values(found[0], file)
    return RulesText(text, file, "rules file")


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


def of_values(values: documents.Object, file: str) -> RulesText:
    """Return the rules that the chart prometheus-community/prometheus-adapter renders."""
    rules = documents.map_at(values, "rules")
    if existing := documents.text_at(rules, "existing"):  # the chart then renders none of its own
        return RulesText("", file, "Helm values", existing)
    out: dict[str, object] = {}
    # The chart writes its default rules unless told otherwise; the same six as config-gen.
    defaults = () if rules.get("default") is False else config_gen.default_config().rules
    custom: list[object] = list(map(config_gen.dump_rule, defaults))
    written = rules.get("custom")
    custom += written if isinstance(written, list) else []
    if custom:
        out["rules"] = custom
    external = rules.get("external")
    if isinstance(external, list) and external:
        out["externalRules"] = external
    if rules.get("resource"):
        out["resourceRules"] = rules["resource"]
    text = yaml.safe_dump(out, sort_keys=False, width=1000, allow_unicode=True) if out else ""
    return RulesText(text, f"{file} (as the chart renders it)", "Helm values")


def _is_values(document: documents.Object) -> bool:
    rules = documents.at(document, "rules")
    return documents.is_mapping(rules) or (
        not _SECTIONS & set(document) and documents.is_mapping(documents.at(document, "prometheus"))
    )


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
