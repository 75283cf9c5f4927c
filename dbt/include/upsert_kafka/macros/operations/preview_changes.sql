{#-- dbt run-operation preview_changes --args '{model: users}': what a run would publish; writes nothing. --#}
{% macro preview_changes(model) %}
  {%- set found = graph.nodes.values() | selectattr('resource_type', 'equalto', 'model') | selectattr('name', 'equalto', model) | list -%}
  {%- if not found -%}
    {% do exceptions.raise_compiler_error("preview_changes: the project has no model '" ~ model ~ "'") %}
  {%- endif -%}
  {%- set node = found[0] -%}
  {%- if node.config.materialized != 'upsert_kafka' -%}
    {% do exceptions.raise_compiler_error("preview_changes: '" ~ model ~ "' is materialized as " ~ node.config.materialized ~ ", not as upsert_kafka") %}
  {%- endif -%}
  {#-- A model's own config() has been read; here it must only be there. --#}
  {%- set sql = render("{% macro config() %}{% do varargs %}{% do kwargs %}{% endmacro %}" ~ node.raw_code) -%}
  {%- set relation = api.Relation.create(schema=node.schema, identifier=node.alias, type='view') -%}
  {%- set existing = adapter.get_relation(none, node.schema, node.alias) -%}
  {%- set options = adapter.check_options(node) -%}
  {%- set topic = generate_topic_name(options.topic, node) -%}
  {%- set publication = adapter.publish(node, options, sql, relation, existing, topic, false, true) -%}
  {% do log(model ~ ': ' ~ publication, info=true) %}
{% endmacro %}
