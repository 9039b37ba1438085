"""Go's fmt for template values: ``Sprint``, ``Sprintln`` and ``Sprintf``.

Not here, and written as a bad verb: binary and hexadecimal floats, ``#`` on floats, ``%p``.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct, structs

from podscale.core.goquote import quote
from podscale.core.gotemplate.values import Operand, TemplateRecord, Value, to_bytes, type_name

_DIRECTIVE = re.compile(
    r"%(?P<flags>[-+# 0]*)(?:(?P<wi>\[[^]]*\])?(?P<width>\*|[0-9]+))?"
    r"(?P<dot>\.(?:(?P<pi>\[[^]]*\])?(?P<precision>\*|[0-9]*)))?(?P<vi>\[[^]]*\])?(?P<verb>.)?",
    re.DOTALL,
)
_WIDEST = 10**6  # upstream's limit; it also bounds what a template can make us allocate


class _Flags(Struct, frozen=True):
    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int = 0
    precision: int | None = None
    named: bool = False  # %+v: a struct shows the names of its fields


def sprint(values: Sequence[Operand]) -> str:
    """Return the values, a space between two neighbours of which neither is a text."""
    parts: list[str] = []
    was_text = True
    for value in values:
        is_text = isinstance(value, str)
        if parts and not is_text and not was_text:
            parts.append(" ")
        parts.append(_value(value, "v", _Flags()))
        was_text = is_text
    return "".join(parts)


def sprintln(values: Sequence[Operand]) -> str:
    """Return the values separated by spaces, and a line feed."""
    return " ".join(_value(value, "v", _Flags()) for value in values) + "\n"


def sprintf(pattern: str, values: Sequence[Operand]) -> str:
    """Return ``pattern`` with its verbs replaced; mistakes are written as Go writes them."""
    return _Printer(pattern, values).text()


class _Printer:
    def __init__(self, pattern: str, values: Sequence[Operand]) -> None:
        self._pattern = pattern
        self._values = values
        self._next = 0
        self._reordered = False
        self._bad_index = False

    def text(self) -> str:
        text = _DIRECTIVE.sub(self._directive, self._pattern)
        rest = self._values[self._next :]
        if self._reordered or not rest:
            return text
        extra = ", ".join(
            "<nil>" if value is None else f"{type_name(value)}={_value(value, 'v', _Flags())}"
            for value in rest
        )
        return f"{text}%!(EXTRA {extra})"

    def _directive(self, found: re.Match[str]) -> str:
        verb = found["verb"]
        self._bad_index = False
        problem = ""
        width = precision = None
        minus = "-" in found["flags"]
        if found["width"] is not None:
            width = self._number(found["wi"], found["width"])
            if width is None:
                problem += "%!(BADWIDTH)"
            elif width < 0:
                minus, width = True, -width
        if found["dot"] is not None:
            precision = self._number(found["pi"], found["precision"] or "0")
            if precision is None or precision < 0:
                problem += "%!(BADPREC)"
                precision = None
        if verb is None:
            return f"{problem}%!(NOVERB)"
        self._choose(found["vi"])
        if verb == "%":
            return f"{problem}%"
        if self._bad_index:
            return f"{problem}%!{verb}(BADINDEX)"
        if self._next >= len(self._values):
            return f"{problem}%!{verb}(MISSING)"
        value = self._take()
        flags = found["flags"]
        wanted = _Flags(
            minus=minus,
            plus="+" in flags and verb != "v",
            named="+" in flags and verb == "v",
            sharp="#" in flags,
            space=" " in flags,
            zero="0" in flags and not minus,
            width=width or 0,
            precision=precision,
        )
        return problem + _value(value, verb, wanted)

    def _choose(self, index: str | None) -> None:
        if index is None:
            return
        self._reordered = True
        number = int(index[1:-1]) if index[1:-1].isdecimal() and len(index) < 10 else 0
        if not 1 <= number <= len(self._values):
            self._bad_index = True
        else:
            self._next = number - 1

    def _take(self) -> Operand:
        if self._next >= len(self._values):
            return None
        self._next += 1
        return self._values[self._next - 1]

    def _number(self, index: str | None, written: str) -> int | None:
        self._choose(index)
        if written != "*":
            number = int(written) if len(written) < 8 else _WIDEST + 1
        else:
            taken = self._take()
            if not isinstance(taken, int) or isinstance(taken, bool):
                return None
            number = taken
        return number if abs(number) <= _WIDEST else None


def _value(value: Operand, verb: str, flags: _Flags) -> str:
    if verb == "T":
        return _text("<nil>" if value is None else type_name(value), "s", flags)
    match value:
        case None:
            return _pad("<nil>", flags) if verb == "v" else f"%!{verb}(<nil>)"
        case bool():
            return _pad(str(value).lower(), flags) if verb in "tv" else _bad(value, verb, flags)
        case int():
            return _integer(value, verb, flags)
        case float():
            return _float(value, verb, flags)
        case str():
            return _text(value, verb, flags)
    return _compound(value, verb, flags)


def _bad(value: Operand, verb: str, flags: _Flags) -> str:
    shown = _value(value, "v", structs.replace(flags, sharp=False))
    return f"%!{verb}({type_name(value)}={shown})"


def _compound(
    value: Sequence[Value] | Mapping[str, Value] | TemplateRecord, verb: str, flags: _Flags
) -> str:
    if verb == "v" and flags.sharp:
        return _go_syntax(value)

    def write(item: Operand) -> str:
        return _value(item, verb, flags)

    match value:
        case TemplateRecord():
            named = (lambda key: f"{key}:") if flags.named else None
            return _join("{", value.fields.items(), named, write)
        case Mapping():
            return _join("map[", sorted(value.items()), lambda key: f"{write(key)}:", write)
    return f"[{' '.join(map(write, value))}]"


def _join(
    opening: str,
    items: Iterable[tuple[str, Operand]],
    name: Callable[[str], str] | None,
    write: Callable[[Operand], str],
) -> str:
    closing = "}" if opening == "{" else "]"
    parts = [(name(key) if name else "") + write(item) for key, item in items]
    return f"{opening}{' '.join(parts)}{closing}"


def _go_syntax(value: Operand) -> str:
    sharp = _Flags(sharp=True)
    match value:
        case TemplateRecord():
            body = ", ".join(f"{k}:{_go_syntax(v)}" for k, v in value.fields.items())
        case Mapping():
            body = ", ".join(f"{quote(k)}:{_go_syntax(v)}" for k, v in sorted(value.items()))
        case None:
            return "interface {}(nil)"
        case str() | int() | float():
            return _value(value, "v", sharp)
        case _:
            body = ", ".join(map(_go_syntax, value))
    return f"{type_name(value)}{{{body}}}"


def _text(value: str, verb: str, flags: _Flags) -> str:
    if verb == "v" and flags.sharp:
        return _pad(quote(value), flags)
    if verb in "vs":
        return _pad(value if flags.precision is None else value[: flags.precision], flags)
    if verb == "q":
        shown = value if flags.precision is None else value[: flags.precision]
        can_be_raw = "`" not in shown and all(c.isprintable() or c == "\t" for c in shown)
        if flags.sharp and can_be_raw:
            return _pad(f"`{shown}`", flags)
        return _pad(_ascii(quote(shown)) if flags.plus else quote(shown), flags)
    if verb in "xX":
        data = to_bytes(value)[: flags.precision]
        prefix = "0x" if flags.sharp else ""
        digits = (
            " ".join(f"{prefix}{byte:02x}" for byte in data)
            if flags.space
            else (prefix if data else "") + data.hex()
        )
        return _pad(digits.upper() if verb == "X" else digits, flags)
    return _bad(value, verb, flags)


def _integer(value: int, verb: str, flags: _Flags) -> str:
    if verb == "c":
        return _pad(_rune(value), flags)
    if verb == "q":
        inner = quote(_rune(value))[1:-1].replace('\\"', '"').replace("'", "\\'")
        return _pad("'" + (_ascii(inner) if flags.plus else inner) + "'", flags)
    if verb == "U":
        digits = f"{value & 0xFFFFFFFFFFFFFFFF:X}".zfill(max(flags.precision or 0, 4))
        shown = f"U+{digits}"
        flags = structs.replace(flags, zero=False)
        is_shown = flags.sharp and 0 <= value <= 0x10FFFF and chr(value).isprintable()
        return _pad(f"{shown} '{chr(value)}'" if is_shown else shown, flags)
    if verb not in "vdboOxX":
        return _bad(value, verb, flags)
    base = {"v": "d", "O": "o"}.get(verb, verb)
    digits = format(abs(value), base)
    prefix = {"o": "0", "b": "0b", "x": "0x", "X": "0X"}.get(verb, "") if flags.sharp else ""
    if verb == "O":
        prefix = "0o"
    sign = "-" if value < 0 else "+" if flags.plus else " " if flags.space else ""
    if flags.precision is not None:
        if flags.precision == 0 and value == 0:
            return " " * flags.width
        digits = digits.zfill(flags.precision)
        flags = structs.replace(flags, zero=False)
    elif flags.zero and flags.width:
        digits = digits.zfill(flags.width - len(sign))
    if verb == "o" and digits.startswith("0"):
        prefix = ""
    return _pad(f"{sign}{prefix}{digits}", flags)


def _float(value: float, verb: str, flags: _Flags) -> str:
    if verb not in "veEfFgG":
        return _bad(value, verb, flags)
    if math.isinf(value) or math.isnan(value):
        digits = "NaN" if math.isnan(value) else "Inf"
    else:
        digits = _finite(abs(value), verb, flags)
    sign = "-" if math.copysign(1, value) < 0 and not math.isnan(value) else ""
    if not sign and (flags.plus or (digits == "Inf" and not flags.space)):
        sign = "+"
    elif not sign and flags.space:
        sign = " "
    if flags.zero and flags.width and digits not in ("NaN", "Inf"):
        digits = digits.zfill(flags.width - len(sign))
    return _pad(sign + digits, flags)


def _finite(value: float, verb: str, flags: _Flags) -> str:
    precision = flags.precision
    if verb in "vgG" and precision is None:
        # The shortest digits that read back; the exponent form from 1e6 on.
        shortest = Decimal(repr(value)).normalize()
        digits, place = "".join(map(str, shortest.as_tuple().digits)), shortest.adjusted()
        if value and not -4 <= place < 6:
            tail = f".{digits[1:]}" if len(digits) > 1 else ""
            return f"{digits[0]}{tail}{'E' if verb == 'G' else 'e'}{place:+03d}"
        return f"{value:.{max(len(digits) - 1 - place, 0)}f}"
    shape = {"v": "g", "F": "f"}.get(verb, verb)
    return f"{value:{'#' if flags.sharp else ''}.{6 if precision is None else precision}{shape}}"


def _pad(text: str, flags: _Flags) -> str:
    missing = flags.width - len(text)
    if missing <= 0:
        return text
    if flags.minus:
        return text + " " * missing
    return ("0" if flags.zero else " ") * missing + text


def _rune(code: int) -> str:
    valid = 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000
    return chr(code) if valid else "\ufffd"


def _ascii(quoted: str) -> str:
    return "".join(
        c if c.isascii() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"
        for c in quoted
    )
