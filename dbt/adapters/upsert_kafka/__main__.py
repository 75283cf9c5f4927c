"""The program `upsert-kafka`. `upsert-kafka dbt` must not wait for the imports of the other commands."""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:2] == ["dbt"]:
        from dbt.adapters.upsert_kafka.resident import client

        sys.exit(client.main(sys.argv[2:]))
    from dbt.adapters.upsert_kafka import cli

    cli.main(prog_name="upsert-kafka")


if __name__ == "__main__":
    main()
