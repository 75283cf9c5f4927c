{#-- A project overrides this macro to name its topics in its own way. --#}
{% macro generate_topic_name(custom_topic_name=none, node=none) -%}
  {{ return(adapter.dispatch('generate_topic_name', 'dbt')(custom_topic_name, node)) }}
{%- endmacro %}

{% macro default__generate_topic_name(custom_topic_name=none, node=none) -%}
  {{ return(custom_topic_name or node.schema ~ '.' ~ node.alias) }}
{%- endmacro %}
