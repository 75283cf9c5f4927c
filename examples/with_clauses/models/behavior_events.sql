-- Writes the topic that user_behavior reads; in production another application does this.
{{ config(materialized='kafka', topic='user_behavior', format='csv') }}

select user_id, item_id, category_id, behavior, cast(ts as timestamp_ntz) as ts from {{ ref('raw_behavior') }}
