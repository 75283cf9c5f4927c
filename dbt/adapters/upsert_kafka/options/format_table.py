"""The table of format options: the name, type, default and meaning of each option of each format.

Names in `config()` follow one rule: `csv_null_literal` applies to key and value, `key_csv_null_literal` to the key only,
`value_csv_null_literal` to the value only. The other options are in `table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.options import values as t
from dbt.adapters.upsert_kafka.options.table import KAFKA_SOURCE, MATERIALIZATIONS, NO_SECRET, SINKS, underscored
from dbt.adapters.upsert_kafka.options.values import ValueType


@dataclass(frozen=True)
class FormatOption:
    """An option of one or more formats."""

    formats: tuple[str, ...]
    name: str
    type: ValueType
    meaning: str
    default_text: str = "–"
    aliases: tuple[str, ...] = ()
    on: tuple[str, ...] = MATERIALIZATIONS
    secret: bool = False
    per_side: bool = False
    """Key and value need different values, so that the option can't be set for both at once."""
    no_effect: str = ""
    """Why the option has no effect; empty if it has one. The value is checked in both cases."""

    @property
    def short(self) -> str:
        return underscored(self.name)


_SOURCE = (KAFKA_SOURCE,)
_NO_PASSWORD = t.refused(
    "can't be set: the schema registry client reads PEM files, which have no store password; convert the store to PEM"
)
_SECRET = t.refused(f"{NO_SECRET} `schema_registry` of the profile")
_NO_NULL_KEYS = "maps in Spark have no NULL keys"
_FROM_PROFILE = "the credentials that `schema_registry` of the profile sets are used"
_REGISTERED = ("avro-confluent", "json-schema-confluent")
_JSON_LIKE = ("json", "debezium-json", "canal-json")

FORMAT_OPTIONS: tuple[FormatOption, ...] = (
    FormatOption(("csv",), "field-delimiter", t.DELIMITER, "The character between two fields.", "`,`"),
    FormatOption(("csv",), "quote-character", t.CHARACTER, "The character that encloses a quoted field.", '`"`'),
    FormatOption(
        ("csv",), "disable-quote-character", t.BOOLEAN, "Never quote fields. Can't be combined with quote-character.", "false"
    ),
    FormatOption(("csv",), "escape-character", t.CHARACTER, "The character that escapes the next one."),
    FormatOption(("csv",), "null-literal", t.ANY_TEXT, "The text that represents NULL.", "empty field"),
    FormatOption(
        ("csv",), "array-element-delimiter", t.CHARACTER, "The character between two elements of an array or struct.", "`;`"
    ),
    FormatOption(
        ("csv",),
        "write-bigdecimal-in-scientific-notation",
        t.BOOLEAN,
        "Write decimals in scientific notation: 100000 as 1E+5.",
        "false",
    ),
    FormatOption(("csv",), "allow-comments", t.BOOLEAN, "Skip messages that start with #.", "false", on=_SOURCE),
    FormatOption(("csv", *_JSON_LIKE), "ignore-parse-errors", t.BOOLEAN, "The same as ignore_parse_errors.", "false"),
    FormatOption(_JSON_LIKE, "timestamp-format.standard", t.choice("SQL", "ISO-8601"), "The format of timestamps.", "SQL"),
    FormatOption(_JSON_LIKE, "encode.decimal-as-plain-number", t.BOOLEAN, "Write decimals without exponents.", "false"),
    FormatOption(_JSON_LIKE, "encode.ignore-null-fields", t.BOOLEAN, "Leave out fields that are NULL.", "false"),
    FormatOption(
        _JSON_LIKE,
        "map-null-key.mode",
        t.choice("FAIL", "DROP", "LITERAL"),
        "What to do with a NULL key of a map.",
        "FAIL",
        no_effect=_NO_NULL_KEYS,
    ),
    FormatOption(
        _JSON_LIKE,
        "map-null-key.literal",
        t.TEXT,
        "The text that represents a NULL key of a map. Needs mode LITERAL.",
        "`null`",
        no_effect=_NO_NULL_KEYS,
    ),
    FormatOption(("json",), "fail-on-missing-field", t.BOOLEAN, "Fail if a field is missing in a message.", "false", on=_SOURCE),
    FormatOption(
        ("debezium-json",),
        "schema-include",
        t.BOOLEAN,
        "Messages contain the schema that Kafka Connect adds.",
        "false",
        on=_SOURCE,
    ),
    FormatOption(
        ("canal-json",),
        "database.include",
        t.PATTERN,
        "A regular expression. Only changes of matching databases are read.",
        on=_SOURCE,
    ),
    FormatOption(
        ("canal-json",), "table.include", t.PATTERN, "A regular expression. Only changes of matching tables are read.", on=_SOURCE
    ),
    FormatOption(
        ("avro",),
        "timestamp_mapping.legacy",
        t.BOOLEAN,
        "Map TIMESTAMP_NTZ to Avro's `timestamp-millis`, as Flink did before 1.19.",
        "true",
    ),
    FormatOption(_REGISTERED, "url", t.URL, "The URL of the schema registry.", "the profile's", aliases=("schema-registry.url",)),
    FormatOption(
        _REGISTERED,
        "subject",
        t.TEXT,
        "The subject of the schema.",
        "`<topic>-key`, `<topic>-value`",
        aliases=("schema-registry.subject",),
        per_side=True,
    ),
    FormatOption(
        ("avro-confluent",),
        "schema",
        t.AVRO_SCHEMA,
        "The Avro schema to register. It must describe the same columns; names of records and documentation may differ.",
        "derived from the columns",
        per_side=True,
    ),
    FormatOption(
        ("json-schema-confluent",),
        "schema",
        t.JSON_SCHEMA,
        "The JSON Schema to register. It must describe the same columns; titles, descriptions and defaults may differ.",
        "derived from the columns",
        per_side=True,
    ),
    FormatOption(
        _REGISTERED,
        "schema-references",
        t.REFERENCES,
        "The schemas of other subjects that schema refers to: by the full name of a type (Avro) or by `$ref` (JSON Schema). The "
        "profile's topic_prefix and topic_suffix do not apply to these subjects.",
        on=SINKS,
        per_side=True,
    ),
    FormatOption(
        _REGISTERED,
        "schema-docs",
        t.BOOLEAN,
        "Derived schemas contain the descriptions of the model and its columns. A changed description is a new schema, whose id "
        "is in every record: all rows are published again.",
        "false",
        on=SINKS,
    ),
    FormatOption(
        _REGISTERED,
        "auto-register",
        t.BOOLEAN,
        "Register the schema. If false, a schema that is not registered under the subject is refused.",
        "true",
        aliases=("auto.register.schemas",),
        on=SINKS,
    ),
    FormatOption(
        _REGISTERED,
        "use-latest-version",
        t.BOOLEAN,
        "Write the id of the subject's latest version, which must describe the same columns. Nothing is registered.",
        "false",
        aliases=("use.latest.version",),
        on=SINKS,
    ),
    FormatOption(
        _REGISTERED,
        "subject-name-strategy",
        t.choice("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"),
        "How the subject is named if subject is not set. The last two need schema, whose record name (title) they use.",
        "TopicNameStrategy",
        on=SINKS,
    ),
    FormatOption(
        _REGISTERED,
        "compatibility",
        t.choice(
            *("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"),
        ),
        "The compatibility level of a subject that the run creates.",
        "the registry's",
        on=SINKS,
    ),
    FormatOption(
        _REGISTERED,
        "basic-auth.credentials-source",
        t.choice("USER_INFO", "URL"),
        "Where user and password are set.",
        no_effect=_FROM_PROFILE,
    ),
    FormatOption(
        _REGISTERED,
        "basic-auth.user-info",
        _SECRET,
        "User and password for the registry, `user:password`.",
        "the profile's",
        secret=True,
    ),
    FormatOption(
        _REGISTERED, "bearer-auth.credentials-source", t.TEXT, "Where the bearer token is set.", no_effect=_FROM_PROFILE
    ),
    FormatOption(_REGISTERED, "bearer-auth.token", _SECRET, "The bearer token for the registry.", "the profile's", secret=True),
    FormatOption(
        _REGISTERED, "ssl.keystore.location", t.TEXT, "A PEM file with the client's certificate and key.", "the profile's"
    ),
    FormatOption(
        _REGISTERED, "ssl.keystore.password", _NO_PASSWORD, "The password of a Java keystore; not supported.", secret=True
    ),
    FormatOption(
        _REGISTERED,
        "ssl.truststore.location",
        t.TEXT,
        "A PEM file with the certificates to trust.",
        "the profile's",
    ),
    FormatOption(
        _REGISTERED,
        "ssl.truststore.password",
        _NO_PASSWORD,
        "The password of a Java truststore; not supported.",
        secret=True,
    ),
)


def checked(format: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a format by their short names, for options that do not come from a model.

    Raises:
        ValueError: an option is not known, or its value is wrong.
    """
    known = {option.short: option for option in FORMAT_OPTIONS if format in option.formats}
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"the option {unknown[0]!r} of the format {format} is unknown")
    return {name: known[name].type.parse(value) for name, value in given.items()}
