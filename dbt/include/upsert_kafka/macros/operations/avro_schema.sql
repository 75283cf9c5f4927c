{#-- dbt run-operation avro_schema --args '{model: users}': logs the Avro schemas of the model's key and value. --#}
{% macro avro_schema(model) %}
  {%- set found = upsert_kafka_model('avro_schema', model, ['upsert_kafka', 'kafka']) -%}
  {%- set schemas = adapter.avro_schemas(found.node, found.sql, found.topic) -%}
  {%- if not schemas -%}
    {% do exceptions.raise_compiler_error("avro_schema: the key and the value of '" ~ model ~ "' are neither avro nor avro-confluent. Set key_format or value_format.") %}
  {%- endif -%}
  {%- for role, schema in schemas.items() -%}
    {% do log(model ~ ' ' ~ role ~ ': ' ~ schema, info=true) %}
  {%- endfor -%}
{% endmacro %}
