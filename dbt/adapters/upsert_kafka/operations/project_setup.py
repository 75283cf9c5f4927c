"""The question of `dbt init` about the shape of json values, and the lines that the answer writes to dbt_project.yml.

dbt asks the questions of profile_template.yml, whose answers can only be written to profiles.yml.
"""

from __future__ import annotations

import re
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
    project.write_text(with_lines(before))
    click.echo(f"Written to {project.absolute()}, below models:\n{LINES}", nl=False)


def with_lines(project: str) -> str:
    """The text of dbt_project.yml with `LINES` for all models.

    >>> with_lines("name: shop\\nmodels:\\n  shop: {}\\n").startswith("name: shop\\nmodels:\\n  # Values of json")
    True
    >>> with_lines("name: shop\\nmodels:\\n  shop: {}\\n").endswith("ISO-8601\\n  shop: {}\\n")
    True
    """
    heading = re.search(r"^models:[ \t]*\n", project, flags=re.MULTILINE)
    if heading is None:
        return f"{project.rstrip()}\n\nmodels:\n{LINES}"
    return project[: heading.end()] + LINES + project[heading.end() :]
