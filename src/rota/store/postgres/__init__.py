"""The store in PostgreSQL 15 or later: any number of servers, no state in their connections."""
