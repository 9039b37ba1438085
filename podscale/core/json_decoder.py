"""JSON that others wrote: every body, annotation and file of JSON is decoded here.

``msgspec.DecodeError`` is the one thing that can go wrong, ``ValidationError`` being one.
msgspec itself also raises ``RecursionError``, where values nest deeper than the interpreter
follows, and ``UnicodeError``, where bytes are no UTF-8 or a text has half a surrogate pair.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

T = TypeVar("T")
JsonText = bytes | bytearray | str | msgspec.Raw


class NestsTooDeep(msgspec.DecodeError):
    """The text is not read because the interpreter would not follow."""


class JsonDecoder(Generic[T]):
    """Decodes JSON to one type. To be made once for each type: it costs more than to decode."""

    def __init__(
        self,
        type_: type[T],
        *,
        strict: bool = True,
        dec_hook: Callable[[type, Any], Any] | None = None,
    ) -> None:
        """``strict`` and ``dec_hook`` are msgspec's."""
        self._decode = msgspec.json.Decoder(type_, strict=strict, dec_hook=dec_hook).decode

    def decode(self, text: JsonText) -> T:
        """Return what ``text`` says; raises ``msgspec.DecodeError``."""
        try:
            return self._decode(text)
        except RecursionError:
            raise NestsTooDeep("nested too deeply") from None
        except UnicodeError as error:
            raise msgspec.DecodeError(str(error)) from None


@overload
def decode_json(text: JsonText) -> Any: ...
@overload
def decode_json(text: JsonText, type_: type[T]) -> T: ...
def decode_json(text: JsonText, type_: Any = Any) -> Any:
    """Return what ``text`` says, by default in dicts and lists; raises ``msgspec.DecodeError``."""
    return _decoder(cast(Hashable, type_)).decode(text)


@functools.cache
def _decoder(type_: Hashable) -> JsonDecoder[Any]:
    return JsonDecoder(cast(type[Any], type_))
