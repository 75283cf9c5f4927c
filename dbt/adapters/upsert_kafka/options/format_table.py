"""The table of format options: what each format takes, on which side, and what it means.

Names are made by rule: `csv_null_literal` is for both sides, `key_csv_null_literal` and `value_csv_null_literal` for one.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.upsert_kafka.options import values as t
from dbt.adapters.upsert_kafka.options.table import KAFKA_SOURCE, MATERIALIZATIONS, NO_SECRET, underscored
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
    """Key and value can't share one: say it for each."""
    no_effect: str = ""
    """Why the option is checked and then has nothing to do here."""

    @property
    def short(self) -> str:
        return underscored(self.name)


_SOURCE = (KAFKA_SOURCE,)
_NO_PASSWORD = t.refused(
    "can't be set: the registry's client takes PEM files, which have no password; convert the store and name its file"
)
_SECRET = t.refused(f"{NO_SECRET} `schema_registry` of the profile")
_NO_NULL_KEYS = "maps in Spark have no null keys"
_JSON_LIKE = ("json", "debezium-json", "canal-json")

FORMAT_OPTIONS: tuple[FormatOption, ...] = (
    FormatOption(("csv",), "field-delimiter", t.DELIMITER, "Stands between fields.", "`,`"),
    FormatOption(("csv",), "quote-character", t.CHARACTER, "Encloses a field that needs it.", '`"`'),
    FormatOption(("csv",), "disable-quote-character", t.BOOLEAN, "Never quote; not with quote-character.", "false"),
    FormatOption(("csv",), "escape-character", t.CHARACTER, "Stands before a character that is to be taken as it is."),
    FormatOption(("csv",), "null-literal", t.ANY_TEXT, "What a null is written as.", "empty field"),
    FormatOption(("csv",), "array-element-delimiter", t.CHARACTER, "Stands between the elements of an array.", "`;`"),
    FormatOption(
        ("csv",), "write-bigdecimal-in-scientific-notation", t.BOOLEAN, "Write decimals such as 100000 as 1E+5.", "false"
    ),
    FormatOption(("csv",), "allow-comments", t.BOOLEAN, "Skip lines that start with #.", "false", on=_SOURCE),
    FormatOption(("csv", *_JSON_LIKE), "ignore-parse-errors", t.BOOLEAN, "The same as ignore_parse_errors.", "false"),
    FormatOption(_JSON_LIKE, "timestamp-format.standard", t.choice("SQL", "ISO-8601"), "How timestamps are written.", "SQL"),
    FormatOption(_JSON_LIKE, "encode.decimal-as-plain-number", t.BOOLEAN, "Write decimals without exponents.", "false"),
    FormatOption(_JSON_LIKE, "encode.ignore-null-fields", t.BOOLEAN, "Leave out fields that are null.", "false"),
    FormatOption(
        _JSON_LIKE,
        "map-null-key.mode",
        t.choice("FAIL", "DROP", "LITERAL"),
        "What happens to a null key of a map.",
        "FAIL",
        no_effect=_NO_NULL_KEYS,
    ),
    FormatOption(
        _JSON_LIKE,
        "map-null-key.literal",
        t.TEXT,
        "What a null key of a map is written as; needs mode LITERAL.",
        "`null`",
        no_effect=_NO_NULL_KEYS,
    ),
    FormatOption(("json",), "fail-on-missing-field", t.BOOLEAN, "Fail when a message lacks a field.", "false", on=_SOURCE),
    FormatOption(("debezium-json",), "schema-include", t.BOOLEAN, "Messages carry Kafka Connect's schema.", "false", on=_SOURCE),
    FormatOption(("canal-json",), "database.include", t.PATTERN, "Read only changes of databases that match.", on=_SOURCE),
    FormatOption(("canal-json",), "table.include", t.PATTERN, "Read only changes of tables that match.", on=_SOURCE),
    FormatOption(
        ("avro",),
        "timestamp_mapping.legacy",
        t.BOOLEAN,
        "Write TIMESTAMP_NTZ as Avro's timestamp, as Flink did before 1.19.",
        "true",
    ),
    FormatOption(("avro-confluent",), "url", t.URL, "The schema registry.", "the profile's", aliases=("schema-registry.url",)),
    FormatOption(
        ("avro-confluent",),
        "subject",
        t.TEXT,
        "The subject that holds the schema.",
        "`<topic>-key`, `<topic>-value`",
        aliases=("schema-registry.subject",),
        per_side=True,
    ),
    FormatOption(
        ("avro-confluent",),
        "schema",
        t.TEXT,
        "The Avro schema, instead of one made from the columns.",
        "made from the columns",
        per_side=True,
    ),
    FormatOption(
        ("avro-confluent",),
        "basic-auth.credentials-source",
        t.choice("USER_INFO", "URL"),
        "Where user and password are.",
        "the profile's",
    ),
    FormatOption(
        ("avro-confluent",), "basic-auth.user-info", _SECRET, "user:password for the registry.", "the profile's", secret=True
    ),
    FormatOption(("avro-confluent",), "bearer-auth.credentials-source", t.TEXT, "Where the token is.", "the profile's"),
    FormatOption(("avro-confluent",), "bearer-auth.token", _SECRET, "Token for the registry.", "the profile's", secret=True),
    FormatOption(
        ("avro-confluent",), "ssl.keystore.location", t.TEXT, "Certificate and key for the registry, a PEM file.", "the profile's"
    ),
    FormatOption(
        ("avro-confluent",), "ssl.keystore.password", _NO_PASSWORD, "Java's keystore has one; a PEM file has none.", secret=True
    ),
    FormatOption(
        ("avro-confluent",),
        "ssl.truststore.location",
        t.TEXT,
        "Certificates that the registry may have, a PEM file.",
        "the profile's",
    ),
    FormatOption(
        ("avro-confluent",),
        "ssl.truststore.password",
        _NO_PASSWORD,
        "Java's truststore has one; a PEM file has none.",
        secret=True,
    ),
)
