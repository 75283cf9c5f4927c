from dbt.adapters.base import AdapterPlugin

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.impl import UpsertKafkaAdapter
from dbt.include import upsert_kafka

Plugin = AdapterPlugin(
    adapter=UpsertKafkaAdapter,  # type: ignore[arg-type]
    credentials=UpsertKafkaCredentials,
    include_path=upsert_kafka.PACKAGE_PATH,
    dependencies=["spark"],
)
