"""The profile: all errors are reported at once, before anything starts."""

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
    "'master' is 'lcoal[2]': must be local, local[n], spark://host:port, yarn or k8s://": {"master": "lcoal[2]"},
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
    "'embedded', which only this machine can reach": {"remote": "sc://a:15002", "bootstrap_servers": "embedded"},
    "'kafka' must be a mapping": {"kafka": ["a"]},
    "'kafka: linger.ms' must be a whole number": {"kafka": {"linger.ms": "soon"}},
    "'kafka: partitioner.ignore.keys' can't be set: it would spread the records": {"kafka": {"partitioner.ignore.keys": True}},
    "'kafka: key.serializer' can't be set: key_format decides": {"kafka": {"key.serializer": "x"}},
    "'database' is 'other': leave it out": {"database": "other"},
    "unknown field 'topic_prefixx', did you mean 'topic_prefix'?": {"topic_prefixx": "dev."},
    "'kafka: securty.protocol' is not a property of Kafka's clients, did you mean 'security.protocol'?": {
        "kafka": {"securty.protocol": "SSL"}
    },
    "unknown field 'enviroment', did you mean 'environment'?": {"enviroment": "ci"},
    "'environment' is 123: must be text; put it in quotes": {"environment": 123},
    "'environment' is empty: leave it out to use the name of the target": {"environment": ""},
    "'state_topic' is empty: leave it out for the default, or set 'none'": {"state_topic": ""},
    "'state_topic' is None: must be text": {"state_topic": None},
    "'state_topic' is 'my state': Kafka allows letters, digits, '.', '_' and '-'": {"state_topic": "my state"},
    "'state_topic' is '..': Kafka allows": {"state_topic": ".."},
    "'topic_prefix' is 'dev/': Kafka allows": {"topic_prefix": "dev/"},
    "'topic_suffix' is ['.dev']: must be text": {"topic_suffix": [".dev"]},
    "unknown field 'topic_defaults.partition'": {"topic_defaults": {"partition": 3}},
}


@pytest.mark.parametrize("message", BAD)
def test_wrong_field_is_reported(message: str) -> None:
    with pytest.raises(DbtRuntimeError) as error:
        UpsertKafkaCredentials.validate({**GOOD, **BAD[message]})
    assert message in str(error.value)


def test_fields_of_a_refused_method_are_not_reported() -> None:
    with pytest.raises(DbtRuntimeError) as error:
        UpsertKafkaCredentials.validate({**GOOD, "method": "thrift", "host": "a", "port": 10001, "user": "b"})
    assert "unknown field" not in str(error.value)


def test_token_in_remote_is_not_shown() -> None:
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", remote="sc://a:15002/;use_ssl=true;token=secret")
    assert dict(credentials.connection_info())["remote"] == "sc://a:15002"
    assert "secret" not in str(list(credentials.connection_info()))


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(DbtRuntimeError) as error:
        UpsertKafkaCredentials.validate({"bootstrap_servers": "broker", "mastr": "local"})
    assert all(part in str(error.value) for part in ("'mastr'", "'schema' is missing", "'broker'"))


def test_environment_fields_are_reported_together() -> None:
    with pytest.raises(DbtRuntimeError) as error:
        UpsertKafkaCredentials.validate(
            {**GOOD, "environment": 1, "state_topic": "a b", "topic_prefix": "a b", "topic_suffix": 2}
        )
    assert all(f"'{field}' is" in str(error.value) for field in ("environment", "state_topic", "topic_prefix", "topic_suffix"))


def test_prefix_and_suffix_enclose_the_name() -> None:
    names = {"environment": "ci 12", "state_topic": "none", "topic_prefix": "ci_12.", "topic_suffix": "-v2"}
    UpsertKafkaCredentials.validate({**GOOD, **names})
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", topic_prefix="ci_12.", topic_suffix="-v2")
    assert credentials.topic_name("shop.orders") == "ci_12.shop.orders-v2"
    assert UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1").topic_name("shop.orders") == "shop.orders"


def test_valid_profile_passes_and_values_become_strings() -> None:
    UpsertKafkaCredentials.validate(GOOD)
    profile = {**GOOD, "kafka": {"enable.idempotence": True, "linger.ms": 5}}
    profile.pop("threads")
    profile.pop("type")
    credentials = UpsertKafkaCredentials.from_dict(profile)
    assert credentials.kafka == {"enable.idempotence": "true", "linger.ms": "5"}


def test_profile_template_of_dbt_init_is_valid() -> None:
    with open(f"{upsert_kafka.PACKAGE_PATH}/profile_template.yml") as file:
        template = yaml.safe_load(file)
    answers = {name: prompt.get("default") for name, prompt in template["prompts"].items()}
    UpsertKafkaCredentials.validate({**template["fixed"], **answers})
