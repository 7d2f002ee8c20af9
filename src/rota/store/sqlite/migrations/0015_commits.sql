-- The commit that a run was fetched at: all its attempts have the same code.
ALTER TABLE run ADD COLUMN source_commit TEXT; -- NULL: none was fetched yet, or its code is not from git
