{% materialization kafka_source, adapter='upsert_kafka', supported_languages=['sql'] %}
  {% do adapter.check_options(model) %}
  {%- set target_relation = this.incorporate(type='view') -%}

  {{ run_hooks(pre_hooks) }}

  {%- set dry_run = var('upsert_kafka_dry_run', false) -%}
  {%- set reading = adapter.expose_source(model, compiled_code, target_relation, graph, generate_topic_name, dry_run) -%}
  {% do store_result('main', response=reading) %}

  {% do persist_docs(target_relation, model) %}

  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{#-- The relation that a kafka_source selects from: the records as columns, with metadata such as kafka_topic and kafka_partition. --#}
{% macro kafka_topic() -%}
  {{ return(adapter.kafka_topic(model, this, graph, generate_topic_name) if execute else '') }}
{%- endmacro %}
