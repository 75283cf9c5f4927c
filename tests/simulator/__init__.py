"""A simulator of transactions: real drivers and tasks of the sink, and a model of brokers, network, clock and processes."""
