"""Which label of a series names which kind of object, in both directions.

Forward (resource to label) serves queries, reverse (label to resource) serves discovery.
Follows ``resourceConverter`` in prometheus-adapter ``pkg/naming``, except that a forward
lookup never teaches the reverse direction anything: upstream's list of metrics changes
after the first query, ours does not.
"""

from collections.abc import Iterable

from msgspec import Struct

from adapter.discovery import mapping
from adapter.errors import NoLabel
from adapter.rules import patterns
from adapter.rules.config import ResourceMapping
from podscale.core import gotemplate
from podscale.kube.client.resource import Resource

# Registered as not namespaced, whatever else the series carries.
ROOT_RESOURCES = frozenset(["namespaces", "nodes", "persistentvolumes"])

_MOST_PARTS, _LONGEST_PARTS = 4096, 256  # labels remembered, characters of one: a search is 10 us


class LabelProblem(ValueError):
    """A part of ``resources`` that cannot be used; ``field`` is its path below it."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


class LabelReading(Struct, frozen=True):
    """What the label names of one series say."""

    resources: tuple[Resource, ...]  # sorted; repeated if two labels agree
    is_namespaced: bool  # upstream's intermediate value (cases B.3)
    unresolved: tuple[str, ...]  # labels that fit the template and name no resource


class ResourceLabels:
    """The label mapping of one rule."""

    def __init__(self, config: ResourceMapping, mapper: mapping.ResourceMapper) -> None:
        """Compile; raises ``LabelProblem``."""
        self._mapper = mapper
        self.mark = (config.template, *sorted(config.overrides))  # equal: ``maps`` is, too
        self._template: gotemplate.Template | None = None
        self._pattern: patterns.Pattern | None = None
        if config.template:
            self._template, self._pattern = _compile_template(config.template)
        self._parts: dict[str, tuple[str, str] | None] = {}  # group and resource by label
        self.override_labels: dict[str, Resource] = {}
        self._by_resource: dict[str, str] = {}
        for label, written in config.overrides.items():
            found = mapping.resolve(mapper, written.group, written.resource)
            if found is None:
                name = mapping.join(written.group, written.resource)
                raise LabelProblem(
                    f"overrides.{label}",
                    f"no resource that is known is named {name!r}; write its name as "
                    "`kubectl api-resources` prints it, with the group if it has one",
                )
            self.override_labels[label] = found
            # Two labels for one resource: upstream picks one at random per start, here
            # the one written last is asked for.
            self._by_resource[found.group_resource] = label

    @property
    def has_template(self) -> bool:
        """Return whether what a label means hangs on the cluster's resources."""
        return self._template is not None

    def read(self, labels: Iterable[str]) -> LabelReading:
        """Return the resources that the label names of a series stand for."""
        found: list[Resource] = []
        unresolved: list[str] = []
        is_namespaced = False
        for label in labels:
            if label == "__name__":
                continue
            described, is_of_template = self._described(label)
            if described is None and is_of_template:
                unresolved.append(label)
                continue
            if described is not None:
                found.append(described)
            if described is None or described.group_resource not in ROOT_RESOURCES:
                is_namespaced = True
        found.sort(key=lambda d: d.group_resource)
        return LabelReading(tuple(found), is_namespaced, tuple(sorted(unresolved)))

    def maps(self, label: str) -> bool:
        """Return whether the label of this name says which object a series is of."""
        return self._described(label)[0] is not None

    def _described(self, label: str) -> tuple[Resource | None, bool]:
        described = self.override_labels.get(label)
        if described is not None or self._pattern is None or label == "__name__":
            return described, False
        if label not in self._parts:
            if len(self._parts) >= _MOST_PARTS:
                self._parts.clear()
            match = self._pattern.search(label)
            groups = None if match is None else match.groupdict()
            parts = None if groups is None else (groups.get("group") or "", groups["resource"])
            if len(label) > _LONGEST_PARTS:
                return self._resolved(parts)
            self._parts[label] = parts
        return self._resolved(self._parts[label])

    def _resolved(self, parts: tuple[str, str] | None) -> tuple[Resource | None, bool]:
        # Never kept: the cluster's resources come and go.
        return (None, False) if parts is None else (mapping.resolve(self._mapper, *parts), True)

    def label(self, key: str) -> str:
        """Return the label that names objects of ``resource[.group]``; raises ``NoLabel``."""
        known = self._by_resource.get(key)
        if known is not None:
            return known
        if self._template is None:
            raise NoLabel(
                f"the rule names no label for {key}: add an override for it or a template"
            )
        group, resource = mapping.split(key)
        # Upstream looks for the singular by resource name alone, whatever the group.
        described = mapping.resolve(self._mapper, "", resource)
        if described is None:
            raise NoLabel(f"the cluster has no resource {resource!r}, so {key} has no label")
        plain = group.replace(".", "_").replace("-", "_")
        fields = {"Group": plain, "Resource": described.singular}
        try:
            label = self._template.render(fields)
        except gotemplate.TemplateError as error:
            raise NoLabel(f"resources.template fails for {key}: {error}") from None
        if not label:
            raise NoLabel(f"resources.template renders to nothing for {key}")
        # Only a label of a resource that exists is kept, so the cache is bounded by them.
        self._by_resource[key] = label
        return label


def _compile_template(text: str) -> tuple[gotemplate.Template, patterns.Pattern]:
    try:
        template = gotemplate.parse(text)
        # The rest of the text is not escaped: `kube.<<.Resource>>` matches any character
        # where the dot is, as upstream.
        shape = template.render({"Group": "(?P<group>.+?)", "Resource": "(?P<resource>.+?)"})
        if not shape:
            raise LabelProblem("template", f"{text!r} renders to nothing")
        pattern = patterns.compile(f"^{shape}$")
    except LabelProblem:
        raise
    except gotemplate.TemplateSyntaxError as error:
        raise LabelProblem("template", str(error)) from error
    except ValueError as error:  # other errors of templates, and those of patterns
        raise LabelProblem("template", f"{text!r}: {error}") from error
    if "resource" not in pattern.groupindex:
        raise LabelProblem("template", f"{text!r} must contain <<.Resource>>")
    return template, pattern
