{#-- Returns the models that write to topics, each with its topic. --#}
{% macro _topics_of_models() %}
  {%- set found = [] -%}
  {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.config.materialized in ('upsert_kafka', 'kafka') -%}
    {%- do found.append({'node': node, 'topic': upsert_kafka_topic_of(node)}) -%}
  {%- endfor -%}
  {{ return(found) }}
{% endmacro %}

{% macro _log_lines(lines) %}
  {%- for line in lines -%}{% do log(line, info=true) %}{%- endfor -%}
{% endmacro %}

{#-- dbt run-operation list_topics: logs the project's models, their topics and the owners of these. --#}
{% macro list_topics() %}
  {%- if execute -%}{% do _log_lines(adapter.list_topics(_topics_of_models())) %}{%- endif -%}
{% endmacro %}

{#-- dbt run-operation orphan_topics: logs the topics that earlier runs of this project created and no model writes to. --#}
{% macro orphan_topics() %}
  {%- if execute -%}{% do _log_lines(adapter.orphan_topics(_topics_of_models(), graph, true)) %}{%- endif -%}
{% endmacro %}

{#-- dbt run-operation drop_orphan_topics --args '{dry_run: false}': deletes orphans, except those that a consumer group reads. --#}
{% macro drop_orphan_topics(dry_run=true) %}
  {%- if execute -%}
    {% do _log_lines(adapter.orphan_topics(_topics_of_models(), graph, dry_run)) %}
    {%- if dry_run -%}
      {% do log("dry run: nothing is deleted. Add --args '{dry_run: false}' to delete them.", info=true) %}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}
