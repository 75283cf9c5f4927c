{#-- The models that write to topics, each with its topic. --#}
{% macro _topics_of_models() %}
  {%- set found = [] -%}
  {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.config.materialized in ('upsert_kafka', 'kafka') -%}
    {%- do found.append({'node': node, 'topic': generate_topic_name(adapter.check_options(node).topic, node)}) -%}
  {%- endfor -%}
  {{ return(found) }}
{% endmacro %}

{#-- dbt run-operation list_topics: the project's models and their topics. --#}
{% macro list_topics() %}
  {%- if execute -%}
    {%- for line in adapter.list_topics(_topics_of_models()) -%}{% do log(line, info=true) %}{%- endfor -%}
  {%- endif -%}
{% endmacro %}

{#-- dbt run-operation orphan_topics: topics that earlier runs of this project made and no model owns any more. --#}
{% macro orphan_topics() %}
  {%- if execute -%}
    {%- for line in adapter.orphan_topics(_topics_of_models(), graph, true) -%}{% do log(line, info=true) %}{%- endfor -%}
  {%- endif -%}
{% endmacro %}

{#-- dbt run-operation drop_orphan_topics --args '{dry_run: false}': delete them; never one that somebody reads. --#}
{% macro drop_orphan_topics(dry_run=true) %}
  {%- if execute -%}
    {%- for line in adapter.orphan_topics(_topics_of_models(), graph, dry_run) -%}{% do log(line, info=true) %}{%- endfor -%}
    {%- if dry_run -%}
      {% do log("dry run, nothing deleted: add --args '{dry_run: false}'", info=true) %}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}
