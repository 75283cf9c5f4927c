"""The question of `dbt init` about the shape of json values, and the lines that the answer writes to dbt_project.yml.

dbt asks the questions of profile_template.yml, whose answers can only be written to profiles.yml.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import click

LINES = """\
  # Values of json topics: decimals as plain numbers and timestamps in ISO-8601, which differs from Flink's defaults.
  +json_encode_decimal_as_plain_number: true
  +json_timestamp_format_standard: ISO-8601
"""
QUESTION = (
    "Must the topics have the same bytes as Flink's? Flink writes the decimal 10.00 as 1E+1 and separates date and time with a "
    "space. If not, decimals are plain numbers and timestamps are ISO-8601"
)


def ask_about_json() -> None:
    """Ask whether values must match Flink's; if not, set plain decimals and ISO-8601 for all models of the project."""
    project = Path("dbt_project.yml")
    before = project.read_text() if project.is_file() else None
    if before is None or "+json_" in before or click.confirm(QUESTION, default=False):
        return
    after = with_lines(before)
    if after is None:
        click.echo(f"Add to {project.absolute()}, below models:\n{LINES}", nl=False)
        return
    project.write_text(after)
    click.echo(f"Written to {project.absolute()}, below models:\n{LINES}", nl=False)


def with_lines(project: str) -> str | None:
    """The text of dbt_project.yml with `LINES` for all models; None if its models have another shape.

    >>> with_lines("name: shop\\nmodels:\\n  shop: {}\\n").startswith("name: shop\\nmodels:\\n  # Values of json")
    True
    >>> with_lines("name: shop\\nmodels:\\n  shop: {}\\n").endswith("ISO-8601\\n  shop: {}\\n")
    True
    """
    heading = re.search(r"^models:[ \t]*(#.*)?\r?\n", project, flags=re.MULTILINE)
    if heading is not None:
        rest = project[heading.end() :]
        return project[: heading.end()] + textwrap.indent(textwrap.dedent(LINES), _indent(rest)) + rest
    if flow := re.search(r"^models:[ \t]*\{", project, flags=re.MULTILINE):
        settings = [line.strip() for line in LINES.splitlines() if line.strip().startswith("+")]
        rest = project[flow.end() :]
        return f"{project[: flow.end()]}{', '.join(settings)}{'' if rest.lstrip().startswith('}') else ', '}{rest}"
    if re.search(r"""^['"]?models['"]?[ \t]*:""", project, flags=re.MULTILINE):
        return None
    return f"{project.rstrip()}\n\nmodels:\n{LINES}"


def _indent(rest: str) -> str:
    """How the lines below a key are indented.

    Args:
        rest: the text after the key's line.
    """
    first = next((line for line in rest.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first[: len(first) - len(first.lstrip())] or "  "
