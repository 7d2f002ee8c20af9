"""The durable truth on SQL. Statements and transactions are shared; dialects differ in drivers."""
