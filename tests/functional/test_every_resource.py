"""One project with every kind of dbt resource, built twice and documented, in dbt processes as users start them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from tests.counts import counts
from tests.dbt_project import Outcome, Project

MODELS = {
    "seeds/raw_orders.csv": "id,buyer,amount,at\n1,ann,10,2024-01-01\n2,bob,20,2024-01-02\n3,ann,,2024-01-03\n",
    "snapshots/orders_history.sql": """
{% snapshot orders_history %}
{{ config(target_schema=target.schema, unique_key='id', strategy='check', check_cols='all') }}
select * from {{ ref('raw_orders') }}
{% endsnapshot %}
""",
    "models/orders.sql": "select id, buyer, coalesce(amount, 0) as amount, at from {{ ref('raw_orders') }}",
    "models/big_orders.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('orders') }} where amount >= 10",
    "models/order_table.sql": "{{ config(materialized='table') }} select * from {{ ref('big_orders') }}",
    "models/order_log.sql": """
{{ config(materialized='incremental', unique_key='id') }}
select * from {{ ref('orders') }} {% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
""",
    "models/order_sizes.py": """
def model(dbt, session):
    dbt.config(materialized="table")
    return dbt.ref("order_table").selectExpr("id", "amount > 15 as big")
""",
    "models/buyers.sql": """
{{ config(materialized='upsert_kafka') }}
select buyer, sum(amount) as total from {{ ref('orders') }} group by buyer
""",
    "models/buyers_in_python.py": """
def model(dbt, session):
    dbt.config(materialized="upsert_kafka", unique_key="buyer", format="avro")
    return dbt.ref("buyers")
""",
    "models/order_events.sql": "{{ config(materialized='kafka') }} select id, amount from {{ ref('order_log') }}",
    "models/events_read.sql": """
{{ config(materialized='kafka_source', topic=target.schema ~ '.order_events') }}
-- depends_on: {{ ref('order_events') }}
select * from {{ kafka_topic() }}
""",
    "models/schema.yml": """
models:
  - name: buyers
    description: What each buyer spent
    config: {contract: {enforced: true}, persist_docs: {relation: true, columns: true}}
    columns:
      - {name: buyer, data_type: string, description: Who, constraints: [{type: primary_key}], data_tests: [unique]}
      - {name: total, data_type: bigint, constraints: [{type: not_null}]}
  - name: events_read
    columns:
      - {name: id, data_type: bigint, data_tests: [not_null]}
      - {name: amount, data_type: bigint}
unit_tests:
  - name: totals_are_sums
    model: buyers
    given:
      - input: ref('orders')
        rows: [{id: 1, buyer: ann, amount: 1, at: 2024-01-01}, {id: 2, buyer: ann, amount: 2, at: 2024-01-01}]
    expect:
      rows: [{buyer: ann, total: 3}]
exposures:
  - name: dashboard
    type: dashboard
    owner: {email: someone@example.com}
    depends_on: [ref('buyers')]
""",
    "tests/no_negative_totals.sql": "select * from {{ ref('buyers') }} where total < 0",
}


def message(outcome: Outcome, model: str) -> str:
    """The message of a model. `Outcome.message` would also find the model's unit test."""
    return {result["unique_id"]: result["message"] for result in outcome.run_results["results"]}[f"model.shop.{model}"]


@pytest.mark.nightly
def test_project_with_every_resource_is_built_twice_and_documented(dbt_project: Callable[..., Project], schema_name: str) -> None:
    project = dbt_project(MODELS, file_format="delta")
    first = project.succeed("build")
    kinds = Counter(result["unique_id"].partition(".")[0] for result in first.run_results["results"])
    assert kinds == {"model": 8, "test": 3, "seed": 1, "snapshot": 1, "unit_test": 1, "exposure": 1}
    assert counts(message(first, "buyers")) == counts(message(first, "buyers_in_python")) == (2, 0, 0, 0)
    assert counts(message(first, "order_events")) == (3,)

    project.write({"seeds/raw_orders.csv": MODELS["seeds/raw_orders.csv"] + "4,bob,5,2024-01-04\n"})
    with project.one_process():
        second = project.succeed("build")
        assert counts(message(second, "buyers")) == counts(message(second, "buyers_in_python")) == (0, 1, 0, 1)

        project.succeed("docs", "generate")
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text())["nodes"]
    buyers = catalog["model.shop.buyers"]
    assert buyers["metadata"]["comment"] == "What each buyer spent"
    assert buyers["columns"]["buyer"]["comment"] == "Who"
    assert buyers["stats"]["topic"]["value"] == f"{schema_name}.buyers"
    assert buyers["stats"]["records"]["value"] == 3
    schema = json.loads(catalog["model.shop.buyers_in_python"]["stats"]["topic_value_schema"]["value"])
    assert [field["name"] for field in schema["fields"]] == ["buyer", "total"]
    assert catalog["model.shop.order_log"]["metadata"]["type"] == "table"
    manifest = json.loads((project.folder / "target" / "manifest.json").read_text())
    assert manifest["parent_map"]["exposure.shop.dashboard"] == ["model.shop.buyers"]
