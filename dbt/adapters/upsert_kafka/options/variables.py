"""The dbt variables of this adapter. Their names begin with `upsert_kafka_`.

A variable that is misspelt, or in a place where dbt does not look, is an error: `upsert_kafka_dryrun: true` would publish
instead of showing what would be published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options.dialects import NEAR_MISS, nearest, shown
from dbt.adapters.upsert_kafka.options.table import underscored
from dbt.adapters.upsert_kafka.options.values import BOOLEAN

PREFIX = "upsert_kafka_"
DRY_RUN = "upsert_kafka_dry_run"
VARIABLES = {DRY_RUN: BOOLEAN}


def problems(project: Mapping[str, Any], command_line: Mapping[str, Any], packages: Collection[str]) -> list[str]:
    """One sentence per variable that is misspelt, has a wrong value, or is where dbt does not look for it.

    Args:
        project: `vars` of dbt_project.yml.
        command_line: of `--vars`.
        packages: the packages that have models. The variables of a model are those of its package and the global ones.

    >>> problems({"upsert_kafka_dryrun": True, "region": "eu"}, {}, ["shop"])
    ['variable upsert_kafka_dryrun: does not exist; did you mean upsert_kafka_dry_run?']
    >>> problems({}, {"upsert_kafka_dry_run": "ture"}, ["shop"])
    ["variable upsert_kafka_dry_run='ture': must be true or false"]
    >>> problems({"shpo": {"upsert_kafka_dry_run": True}}, {}, ["shop"])
    ['variable upsert_kafka_dry_run below shpo: has no effect there; set it directly below vars, or below shop']
    """
    # --vars has no packages.
    places = [
        *((path, value, set(packages), "below vars") for path, value in _flat(project)),
        *((path, value, set[str](), "in --vars") for path, value in _flat(command_line)),
    ]
    return [problem for place in places if (problem := _problem(*place))]


def _problem(path: tuple[str, ...], value: Any, packages: Collection[str], directly: str) -> str | None:
    *place, name = path
    folded = underscored(name).lower()
    near = nearest(folded, VARIABLES, NEAR_MISS)
    if not folded.startswith(PREFIX) and not near:
        return None
    if name not in VARIABLES:
        return f"variable {name}: does not exist; {f'did you mean {near}?' if near else _existing()}"
    if place and (len(place) > 1 or place[0] not in packages):
        or_below = f", or below {' or '.join(sorted(packages))}" if packages else ""
        return f"variable {name} below {'.'.join(place)}: has no effect there; set it directly {directly}{or_below}"
    try:
        VARIABLES[name].parse(value)
    except ValueError as error:
        return f"variable {name}={shown(value, False)}: {error}"
    return None


def is_dry_run(value: Any) -> bool:
    """The value of `upsert_kafka_dry_run` as dbt resolves it for a model; text of `--vars` may be 'false'.

    >>> is_dry_run("false")
    False
    """
    try:
        return bool(BOOLEAN.parse(value))
    except ValueError as error:
        raise OptionsError(f"variable {DRY_RUN}={shown(value, False)}: {error}") from error


def _flat(values: Mapping[Any, Any], *place: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All variables with their paths. A dictionary is a variable too."""
    for name, value in values.items():
        yield (*place, str(name)), value
        if isinstance(value, Mapping):
            yield from _flat(value, *place, str(name))


def _existing() -> str:
    return f"this adapter has {', '.join(VARIABLES)}"
