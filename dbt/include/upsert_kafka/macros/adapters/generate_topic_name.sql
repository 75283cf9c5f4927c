{#-- The name of a model's topic, without the profile's topic_prefix and topic_suffix. A project may override this macro. It is called
     for other models than the one that runs: use the argument `node`, not `this` or `model`. --#}
{% macro generate_topic_name(custom_topic_name=none, node=none) -%}
  {{ return(adapter.dispatch('generate_topic_name', 'dbt')(custom_topic_name, node)) }}
{%- endmacro %}

{% macro default__generate_topic_name(custom_topic_name=none, node=none) -%}
  {{ return(custom_topic_name or node.schema ~ '.' ~ node.alias) }}
{%- endmacro %}

{#-- The full name of a model's topic. --#}
{% macro upsert_kafka_topic_of(node) -%}
  {{ return(adapter.topic_name(generate_topic_name(adapter.check_options(node).topic, node))) }}
{%- endmacro %}
