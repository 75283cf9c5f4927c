"""JSON whose numbers keep their text: 55.00 and 1E+1 are read and written as they are.

For messages that people look at: Python's own types would show 55.0 and 10.0, which the message does not contain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn

MAX_DEPTH = 100
"""Of arrays and objects in each other. Python's recursion limit is higher."""


class Number(str):
    """The text of a JSON number that is not a whole number."""


def loads(data: bytes | str) -> Any:
    """The object that a JSON text describes, with `Number` for numbers that are not whole.

    Raises:
        ValueError: the text is not JSON, or nested too deeply.
    """
    try:
        value = json.loads(data, parse_float=Number, parse_int=_whole, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    _check_depth(value)
    return value


def dumps(value: Any, default: Callable[[Any], Any], compact: bool = False, indent: bool = False) -> str:
    """The JSON text of an object.

    Args:
        default: as for `json.dumps`; it is not called for numbers.
        compact: without spaces.
        indent: with a line for each member.

    >>> dumps(loads('{"a": [55.00, 1E+1, -0], "b": "x"}'), str)
    '{"a": [55.00, 1E+1, -0], "b": "x"}'
    >>> dumps({"a": Decimal("1.50"), "b": float("nan")}, str, compact=True)
    '{"a":1.50,"b":"NaN"}'
    >>> dumps({"a": [1]}, str, indent=True) == json.dumps({"a": [1]}, indent=1)
    True
    """
    comma, colon = ("," if compact or indent else ", "), (":" if compact else ": ")

    def members(texts: list[str], brackets: str, level: int) -> str:
        new_line = f"\n{' ' * level}" if indent and texts else ""
        inner = f"{comma}{new_line} ".join(texts) if new_line else comma.join(texts)
        return f"{brackets[0]}{new_line}{' ' if new_line else ''}{inner}{new_line}{brackets[1]}"

    def text(value: Any, level: int) -> str:
        if isinstance(value, Number):
            return str(value)
        if isinstance(value, Decimal) and value.is_finite():
            return f"{value:f}"
        if isinstance(value, float) and not isfinite(value):
            return json.dumps(str(value).replace("nan", "NaN").replace("inf", "Infinity"))
        if isinstance(value, Mapping):
            pairs = [f"{json.dumps(str(name), ensure_ascii=False)}{colon}{text(v, level + 1)}" for name, v in value.items()]
            return members(pairs, "{}", level)
        if isinstance(value, list | tuple):
            return members([text(v, level + 1) for v in value], "[]", level)
        return json.dumps(value, ensure_ascii=False, default=default)

    return text(value, 0)


def _whole(text: str) -> int | Number:
    # Python has no minus zero, and refuses to read very long numbers.
    return Number(text) if text == "-0" or len(text) > 4000 else int(text)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return
    raise ValueError("nested too deeply")


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
