{#-- dbt run-operation preview_changes --args '{model: users}': logs what a run would publish, and writes nothing. --#}
{% macro preview_changes(model) %}
  {%- set found = upsert_kafka_model('preview_changes', model, ['upsert_kafka']) -%}
  {%- set node = found.node -%}
  {%- set relation = api.Relation.create(schema=node.schema, identifier=node.alias, type='view') -%}
  {%- set command = adapter.command(graph, []) -%}
  {%- set publication = adapter.publish(node, found.sql, relation, found.topic, false, true, command) -%}
  {% do log(model ~ ': ' ~ publication, info=true) %}
{% endmacro %}
