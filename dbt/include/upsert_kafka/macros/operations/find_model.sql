{#-- The node of a model that an operation names, its options, topic and SQL. --#}
{% macro upsert_kafka_model(operation, model, materializations) %}
  {%- set found = graph.nodes.values() | selectattr('resource_type', 'equalto', 'model') | selectattr('name', 'equalto', model) | list -%}
  {%- if not found -%}
    {% do exceptions.raise_compiler_error(operation ~ ": the project has no model '" ~ model ~ "'") %}
  {%- endif -%}
  {%- set node = found[0] -%}
  {%- if node.config.materialized not in materializations -%}
    {% do exceptions.raise_compiler_error(operation ~ ": '" ~ model ~ "' is materialized as " ~ node.config.materialized ~ ", not as " ~ materializations | join(' or ')) %}
  {%- endif -%}
  {#-- A model's own config() has been read; here it must only be there. --#}
  {%- set sql = render("{% macro config() %}{% do varargs %}{% do kwargs %}{% endmacro %}" ~ node.raw_code) -%}
  {%- set options = adapter.check_options(node) -%}
  {{ return({'node': node, 'sql': sql, 'options': options, 'topic': generate_topic_name(options.topic, node)}) }}
{% endmacro %}
