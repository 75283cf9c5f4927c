{#-- The same steps as upsert_kafka: what differs is in the options. --#}
{% materialization kafka, adapter='upsert_kafka', supported_languages=['sql'] %}
  {%- set options = adapter.check_options(model) -%}
  {%- set target_relation = this.incorporate(type='view') -%}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set topic = generate_topic_name(options.topic, model) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {%- if config.get('sql_header') -%}
    {% do run_query(config.get('sql_header')) %}
  {%- endif -%}

  {%- set publication = adapter.publish(
      model, options, compiled_code, target_relation, existing_relation, topic,
      should_full_refresh(), var('upsert_kafka_dry_run', false)) -%}
  {% do store_result('main', response=publication) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target_relation, target_relation.topic_table]}) }}
{% endmaterialization %}
