-- Writes the topic that pageviews reads; in production another application does this.
{{ config(materialized='kafka', topic='pageviews', format='json') }}

select user_id, page_id, cast(viewtime as timestamp_ntz) as viewtime, user_region from {{ ref('raw_pageviews') }}
