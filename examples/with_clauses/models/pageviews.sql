-- The events that pageviews_per_region counts, as JSON.
{{ config(
    materialized='upsert_kafka',
    unique_key=['user_id', 'viewtime'],
    with_options={'connector': 'upsert-kafka', 'topic': 'pageviews', 'key.format': 'json', 'value.format': 'json'}
) }}

select user_id, page_id, viewtime, user_region from {{ ref('raw_pageviews') }}
