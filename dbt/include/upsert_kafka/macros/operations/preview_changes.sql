{#-- dbt run-operation preview_changes --args '{model: users}': what a run would publish; writes nothing. --#}
{% macro preview_changes(model) %}
  {%- set found = upsert_kafka_model('preview_changes', model, ['upsert_kafka']) -%}
  {%- set node = found.node -%}
  {%- set relation = api.Relation.create(schema=node.schema, identifier=node.alias, type='view') -%}
  {%- set existing = adapter.get_relation(none, node.schema, node.alias) -%}
  {%- set publication = adapter.publish(node, found.options, found.sql, relation, existing, found.topic, false, true) -%}
  {% do log(model ~ ': ' ~ publication, info=true) %}
{% endmacro %}
