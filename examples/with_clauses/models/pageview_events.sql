-- What others would write into the topic that pageviews reads.
{{ config(materialized='kafka', topic='pageviews', format='json') }}

select user_id, page_id, cast(viewtime as timestamp_ntz) as viewtime, user_region from {{ ref('raw_pageviews') }}
