{#-- Returns the node, topic and SQL of the model that a run-operation names. --#}
{% macro upsert_kafka_model(operation, model, materializations) %}
  {%- set node = adapter.find_model(graph, operation, model, materializations) -%}
  {#-- dbt has read the model's config() already; here a call of it must do nothing. --#}
  {%- set sql = render("{% macro config() %}{% do varargs %}{% do kwargs %}{% endmacro %}" ~ node.raw_code) -%}
  {{ return({'node': node, 'sql': sql, 'topic': upsert_kafka_topic_of(node)}) }}
{% endmacro %}
