"""Which class archive fits, and which are left over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.spark import class_archive


def test_archive_of_changed_jars_is_another_one_and_the_former_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = tmp_path / "kafka.jar"
    jar.write_text("1")
    former = class_archive.archive_path(str(jar))
    former.parent.mkdir()
    former.touch()
    assert str(former) in class_archive.options(str(jar)) and class_archive.former_archives(former) == []
    # Java compares the time of each jar, so the archive of a jar that was downloaded again is of no use.
    os.utime(jar, (1, 1))
    assert class_archive.options(str(jar)) == ""
    assert class_archive.former_archives(class_archive.archive_path(str(jar))) == [former]
