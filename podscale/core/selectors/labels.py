"""What may be a label's key or value, with the sentences of Kubernetes 1.30 to 1.35.

The sentences reach users through the API (400 answers), so they are part of the contract:
the adapter's are those of prometheus-adapter, the HPA's those ``since_1_36``.
"""

import re

_NAME_FORMAT = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORMAT = f"({_NAME_FORMAT})?"
_LABEL_FORMAT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FORMAT = f"{_LABEL_FORMAT}(\\.{_LABEL_FORMAT})*"
_NAME = re.compile(_NAME_FORMAT)
_VALUE = re.compile(_VALUE_FORMAT)
_LABEL = re.compile(_LABEL_FORMAT)
_SUBDOMAIN = re.compile(_SUBDOMAIN_FORMAT)

_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_NAME_FORMAT}')"
)
_PREFIX_RULE = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
    f"'my_value',  or '12345', regex used for validation is '{_VALUE_FORMAT}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN_FORMAT}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL_FORMAT}')"
)
_TOO_LONG = re.compile(r"(must be no more than \d+) characters")


def since_1_36(sentence: str) -> str:
    """Return what is said here of a label's key or value, alone or within an error, in the words
    of Kubernetes 1.36 and later. Names of objects and containers are told of as before."""
    sentence = sentence.replace("a qualified name must", "a valid label key must")
    return _TOO_LONG.sub(r"\1 bytes", sentence)


def key_problems(key: str) -> list[str]:
    """Return why ``key`` is no label key (``[prefix/]name``); empty when it is one."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [f"a qualified name {_NAME_RULE} {_PREFIX_RULE}"]
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {problem}" for problem in subdomain_problems(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode(errors="surrogateescape")) > 63:
        problems.append("name part must be no more than 63 characters")
    if not _NAME.fullmatch(name):
        problems.append(f"name part {_NAME_RULE}")
    return problems


def value_problems(value: str) -> list[str]:
    """Return why ``value`` is no label value; empty when it is one."""
    problems = []
    if len(value.encode(errors="surrogateescape")) > 63:
        problems.append("must be no more than 63 characters")
    if not _VALUE.fullmatch(value):
        problems.append(_VALUE_RULE)
    return problems


def subdomain_problems(name: str) -> list[str]:
    """Return why ``name`` is no RFC 1123 subdomain (object names, key prefixes)."""
    problems = []
    if len(name.encode(errors="surrogateescape")) > 253:
        problems.append("must be no more than 253 characters")
    if not _SUBDOMAIN.fullmatch(name):
        problems.append(_SUBDOMAIN_RULE)
    return problems


def is_label(name: str) -> bool:
    """Return whether ``name`` is an RFC 1123 label: a namespace, a version."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Return whether ``name`` is an RFC 1123 subdomain: an API group, most objects' name."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def dns_label_problems(name: str) -> list[str]:
    """Return why ``name`` is no RFC 1123 label (names of containers)."""
    problems = []
    if len(name.encode(errors="surrogateescape")) > 63:
        problems.append("must be no more than 63 characters")
    if not _LABEL.fullmatch(name):
        problems.append("must not contain dots" if _SUBDOMAIN.fullmatch(name) else _LABEL_RULE)
    return problems
