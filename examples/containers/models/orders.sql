{{ config(materialized='upsert_kafka', unique_key='order_id') }}

-- In your project: a table of your warehouse, or a kafka_source model that the same command runs.
select * from values (1, 'ann', 12.50), (2, 'bob', 3.20), (3, 'ann', 7.00) as orders(order_id, customer, amount)
