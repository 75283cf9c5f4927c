{{ config(materialized='upsert_kafka', unique_key='customer_id', max_deletes='10%', plan_mask=['email']) }}

-- In your project: a table of your warehouse.
select * from values (1, 'ann', 'ann@example.com'), (2, 'bob', 'bob@example.com') as customers(customer_id, name, email)
