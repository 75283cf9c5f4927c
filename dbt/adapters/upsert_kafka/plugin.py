"""The plugin that dbt loads. Importing it imports the whole adapter, so `__init__` does it when dbt asks for it."""

from dbt.adapters.base import AdapterPlugin

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.impl import UpsertKafkaAdapter
from dbt.adapters.upsert_kafka.operations import project_setup
from dbt.include import upsert_kafka

Plugin = AdapterPlugin(
    adapter=UpsertKafkaAdapter,  # type: ignore[arg-type]
    credentials=UpsertKafkaCredentials,
    include_path=upsert_kafka.PACKAGE_PATH,
    dependencies=["spark"],
)

dbt_internals.after_profile_of_init(UpsertKafkaAdapter.ConnectionManager.TYPE, project_setup.ask_about_json)
