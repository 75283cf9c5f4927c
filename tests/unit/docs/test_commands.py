"""Commands of README.md and docs/: their flags exist, and each is run by a test or listed with the reason why not.

commands.yml has the lists. The commands of the tutorial and of the how-to guides are run as they are written, see
tests/documented.py. Nothing is run here: click parses the commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import yaml
from dbt.cli.main import cli as dbt_cli

from dbt.adapters.upsert_kafka import cli
from tests.documented import DOCS, blocks, commands

ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
GUIDES = {DOCS / "tutorial.md", *(DOCS / "how-to").glob("*.md")}
LANGUAGES = {"csv", "ini", "java", "json", "python", "sh", "sql", "text", "yaml"}
LISTS = yaml.safe_load(Path(__file__).with_name("commands.yml").read_text())
PROGRAMS = {"dbt": dbt_cli, "upsert-kafka": cli.main}
PLACEHOLDERS = {"COMMAND": "topics", "HOST:PORT": "localhost:9092"}
MACROS = "\n".join(path.read_text() for path in (ROOT / "dbt" / "include").rglob("*.sql"))


def in_blocks(page: Path) -> Iterator[str]:
    for _, language, text in blocks(page.read_text()):
        if language == "sh":
            yield from commands(text)
        elif language == "text":
            yield from re.findall(r"^\$ (.+)$", text, re.MULTILINE)
        elif language == "ini":
            yield from re.findall(r"^ExecStart=.*/bin/(.+)$", text, re.MULTILINE)
        elif language == "yaml":
            yield from (" ".join(yaml.safe_load(words)) for words in re.findall(r"^ +command: (\[.+\])$", text, re.MULTILINE))


def in_sentences(page: Path) -> Iterator[str]:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for command in re.findall(rf"`((?:{'|'.join(PROGRAMS)})\s[^`]+)`", text):
        yield " ".join(command.split())


def shown(page: Path) -> set[str]:
    """Commands with arguments. `dbt test` in a sentence is a name."""
    return {*in_blocks(page), *(command for command in in_sentences(page) if len(command.split()) > 2)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_blocks_have_a_language(page: Path) -> None:
    """So that no command is in a block that the other tests do not see."""
    fences = re.findall(r"^ *```(\w*)", page.read_text(), re.MULTILINE)
    assert [language for language in fences[::2] if language not in LANGUAGES] == []


def test_each_command_is_run_by_a_test_or_has_a_reason() -> None:
    listed = [command for part in LISTS.values() for entries in part.values() for command in entries]
    assert len(listed) == len(set(listed))
    found = set().union(*(shown(page) for page in PAGES if page not in GUIDES))
    guides = set().union(*(in_blocks(page) for page in GUIDES))
    assert sorted(found - guides - set(listed)) == [], "add them to tests/unit/docs/commands.yml"
    assert sorted(set(listed) - found) == [], "no page shows them any more"


@pytest.mark.parametrize("test", LISTS["run"])
def test_commands_name_a_test_that_exists_and_runs_them(test: str) -> None:
    path, _, name = test.partition("::")
    source = (ROOT / "tests" / path).read_text()
    assert re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE)
    if example := re.search(r"test_example_(\w+)\.py", path):
        source += "".join(file.read_text() for file in (ROOT / "examples" / example[1]).glob("*.yml"))
    for command in LISTS["run"][test]:
        # Names of models, targets and folders differ. The name of the command, or of its operation, does not.
        words = [word for word in shlex.split(command)[1:] if word != "run-operation" and re.fullmatch(r"[a-z][a-z_-]+", word)]
        assert not words or words[0] in source, f"{path} does not have {words[0]}"


Parse = Callable[[str], None]


@pytest.fixture
def parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Parse a command as its program does, without running it. A wrong flag, command or value is a UsageError."""
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan/plan.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_PROFILES_DIR", str(tmp_path))
    contexts: list[click.Context] = []
    # Of groups, too: a group calls it for itself, and then for its command.
    monkeypatch.setattr(click.Command, "invoke", lambda _, context: contexts.append(context))

    def parse(command: str) -> None:
        program, *arguments = (PLACEHOLDERS.get(word, word) for word in shlex.split(command))
        PROGRAMS[program].main(arguments, prog_name=program, standalone_mode=False)
        if "--help" in arguments or "--version" in arguments:
            return
        name, parameters = contexts[-1].info_name, contexts[-1].params
        if name == "run-operation":
            check_operation(parameters["macro"], parameters["args"] or {})
        elif name == "dbt" and parameters.get("arguments"):
            parse(shlex.join(["dbt", *parameters["arguments"]]))

    return parse


def check_operation(macro: str, arguments: dict[str, object]) -> None:
    defined = re.search(rf"macro {macro}\(([^)]*)\)", MACROS)
    assert defined, f"there is no operation {macro}"
    assert set(arguments) <= set(re.findall(r"(\w+)(?:=[^,]*)?(?:,|$)", defined[1]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_have_flags_that_exist(page: Path, parse: Parse) -> None:
    for command in [*in_blocks(page), *in_sentences(page)]:
        if command.partition(" ")[0] in PROGRAMS:
            try:
                # `dbt docs` in a sentence is a name and has no arguments.
                parse(command if len(command.split()) > 2 else f"{command} --help")
            except click.UsageError as error:
                pytest.fail(f"{page.name}: {command}: {error.format_message()}")


@pytest.mark.parametrize(
    "command",
    ["dbt run --fulll-refresh", "dbt rum", "upsert-kafka topic users --tial 1", "upsert-kafka dbt run --sel orders"],
)
def test_misspelt_command_is_found(command: str, parse: Parse) -> None:
    with pytest.raises(click.UsageError):
        parse(command)


@pytest.mark.parametrize("operation", ["adopt", "adopt_topic --args '{name: orders}'"])
def test_misspelt_operation_is_found(operation: str, parse: Parse) -> None:
    with pytest.raises(AssertionError):
        parse(f"dbt run-operation {operation}")
