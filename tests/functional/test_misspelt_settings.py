"""A misspelt option or variable stops the run before anything is written, because it would switch off a guard."""

from __future__ import annotations

from collections.abc import Callable

from tests.dbt_project import Project
from tests.services import end_offsets

MODEL = "{{{{ config(materialized='upsert_kafka', unique_key='id'{more}) }}}} select explode(sequence(1, {rows})) as id"


def test_misspelt_guard_or_variable_leaves_the_topic_untouched(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    project = dbt_project({"models/users.sql": MODEL.format(more="", rows=3)})
    topic = f"{schema_name}.users"
    with project.one_process():
        project.succeed("run")
        before = end_offsets(broker, topic)

        project.write({"models/users.sql": MODEL.format(more=", max_delete=0, partitions='x'", rows=1)})
        misspelt = project.run("run")
        assert misspelt.exit_code == 1
        assert "max_delete: is not an option; did you mean max_deletes?" in misspelt.message("users")
        assert "partitions='x': must be" in misspelt.message("users"), "both problems are in one error"

        project.write({"models/users.sql": MODEL.format(more="", rows=1)})
        for variables in ("{upsert_kafka_dryrun: true}", "{UPSERT-KAFKA-DRY-RUN: true}", "{upsert_kafka_plan: true}"):
            unknown = project.run("run", "--vars", variables)
            assert unknown.exit_code == 1
            assert "does not exist" in unknown.message("users"), unknown.output
        # dbt ignores variables of packages that do not exist, and packages in --vars.
        elsewhere = project.run("run", "--vars", "{shop: {upsert_kafka_dry_run: true}}")
        assert "below shop: has no effect there; set it directly in --vars" in elsewhere.message("users")
        settings = project.folder / "dbt_project.yml"
        written = settings.read_text()
        for variables, message in (
            ("{shop: {upsert_kafka_dry_runn: true}}", "did you mean upsert_kafka_dry_run?"),
            (
                "{shpo: {upsert_kafka_dry_run: true}}",
                "below shpo: has no effect there; set it directly below vars",
            ),
        ):
            settings.write_text(f"{written}\nvars: {variables}\n")
            assert message in project.run("run").message("users")
        settings.write_text(f"{written}\nvars: {{shop: {{upsert_kafka_dry_run: 'true'}}}}\n")
        assert "dry run, nothing published" in project.run("run").message("users")
        assert end_offsets(broker, topic) == before
