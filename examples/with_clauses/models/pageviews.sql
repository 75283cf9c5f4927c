-- Alibaba Cloud, the source of its example: a JSON topic; its columns are in schema.yml.
-- depends_on: {{ ref('pageview_events') }}
{{ config(
    materialized='kafka_source',
    with_options={'connector': 'kafka', 'topic': 'pageviews', 'scan.startup.mode': 'earliest-offset', 'format': 'json'}
) }}

select user_id, page_id, viewtime, user_region from {{ kafka_topic() }}
