{{ config(materialized='view') }}

select user_id, page_id, viewtime, user_region
from {{ ref('raw_pageviews') }}
where user_id is not null
