{#-- dbt run-operation avro_schema --args '{model: users}': the schemas of the model's key and value, for readers of its topic. --#}
{% macro avro_schema(model) %}
  {%- set found = upsert_kafka_model('avro_schema', model, ['upsert_kafka', 'kafka']) -%}
  {%- set schemas = adapter.avro_schemas(found.node, found.options, found.sql, found.topic) -%}
  {%- if not schemas -%}
    {% do exceptions.raise_compiler_error("avro_schema: neither key nor value of '" ~ model ~ "' is avro or avro-confluent") %}
  {%- endif -%}
  {%- for role, schema in schemas.items() -%}
    {% do log(model ~ ' ' ~ role ~ ': ' ~ schema, info=true) %}
  {%- endfor -%}
{% endmacro %}
