"""The profile: every mistake named at once, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.include import upsert_kafka

GOOD: dict[str, Any] = {
    "schema": "analytics",
    "bootstrap_servers": "a:9092,b-1.example:9093",
    "threads": 4,
    "type": "upsert_kafka",
}

BAD: dict[str, dict[str, Any]] = {
    "unknown field 'bootstrap_server', did you mean 'bootstrap_servers'?": {"bootstrap_server": "x:1"},
    "'schema' is missing": {"schema": None},
    "'bootstrap_servers' is missing": {"bootstrap_servers": ""},
    "'bootstrap_servers' is 'broker': must be 'embedded' or a list host:port,host:port": {"bootstrap_servers": "broker"},
    "'bootstrap_servers' is 'a:99999'": {"bootstrap_servers": "a:99999"},
    "'master' and 'remote' exclude each other": {"master": "local[2]", "remote": "sc://a:15002"},
    "'remote' is 'a:15002': must begin with sc://": {"remote": "a:15002"},
    "'method' is 'thrift': topics are written through Spark's DataFrames, and Thrift, HTTP and ODBC carry SQL text only": {
        "method": "thrift",
        "host": "a",
    },
    "'method' is 'odbc'": {"method": "odbc", "driver": "a", "cluster": "b", "token": "c"},
    "'method' is 'http'": {"method": "http"},
    "'method' is 'session': leave it out": {"method": "session"},
    "'jars' can't be sent to a Spark Connect server": {"remote": "sc://a:15002", "jars": ["a.jar"]},
    "'embedded', which only this machine reaches": {"remote": "sc://a:15002", "bootstrap_servers": "embedded"},
    "'kafka' must be a mapping": {"kafka": ["a"]},
    "'kafka: linger.ms' must be a whole number": {"kafka": {"linger.ms": "soon"}},
    "'kafka: key.serializer' can't be set: key_format decides": {"kafka": {"key.serializer": "x"}},
    "'database' is 'other': leave it out": {"database": "other"},
    "unknown field 'topic_defaults.partition'": {"topic_defaults": {"partition": 3}},
}


@pytest.mark.parametrize("message", BAD)
def test_a_mistake_is_named(message: str) -> None:
    with pytest.raises(DbtRuntimeError) as error:
        UpsertKafkaCredentials.validate({**GOOD, **BAD[message]})
    assert message in str(error.value)


def test_fields_of_a_refused_method_are_not_told_apart() -> None:
    with pytest.raises(DbtRuntimeError) as error:
        UpsertKafkaCredentials.validate({**GOOD, "method": "thrift", "host": "a", "port": 10001, "user": "b"})
    assert "unknown field" not in str(error.value)


def test_a_token_of_spark_connect_is_not_shown() -> None:
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", remote="sc://a:15002/;use_ssl=true;token=secret")
    assert dict(credentials.connection_info())["remote"] == "sc://a:15002"
    assert "secret" not in str(list(credentials.connection_info()))


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(DbtRuntimeError) as error:
        UpsertKafkaCredentials.validate({"bootstrap_servers": "broker", "mastr": "local"})
    assert all(part in str(error.value) for part in ("'mastr'", "'schema' is missing", "'broker'"))


def test_a_good_profile_passes_and_values_become_text() -> None:
    UpsertKafkaCredentials.validate(GOOD)
    profile = {**GOOD, "kafka": {"enable.idempotence": True, "linger.ms": 5}}
    profile.pop("threads")
    profile.pop("type")
    credentials = UpsertKafkaCredentials.from_dict(profile)
    assert credentials.kafka == {"enable.idempotence": "true", "linger.ms": "5"}


def test_dbt_init_asks_for_fields_that_exist() -> None:
    with open(f"{upsert_kafka.PACKAGE_PATH}/profile_template.yml") as file:
        template = yaml.safe_load(file)
    answers = {name: prompt.get("default") for name, prompt in template["prompts"].items()}
    UpsertKafkaCredentials.validate({**template["fixed"], **answers})
