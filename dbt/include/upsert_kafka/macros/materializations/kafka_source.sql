{% materialization kafka_source, adapter='upsert_kafka', supported_languages=['sql'] %}
  {%- set options = adapter.check_options(model) -%}
  {%- set target_relation = this.incorporate(type='view') -%}
  {%- set existing_relation = load_cached_relation(this) -%}

  {{ run_hooks(pre_hooks) }}

  {%- set reading = adapter.expose_source(model, options, compiled_code, target_relation, existing_relation) -%}
  {% do store_result('main', response=reading) %}

  {% do persist_docs(target_relation, model) %}

  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation, target_relation.topic_table]}) }}
{% endmaterialization %}

{#-- What a kafka_source selects from: its messages as columns, with kafka_topic, kafka_partition and so on beside them. --#}
{% macro kafka_topic() -%}
  {{ return(adapter.kafka_topic(model, this) if execute else '') }}
{%- endmacro %}
