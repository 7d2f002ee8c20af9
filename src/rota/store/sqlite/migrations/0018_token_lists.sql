-- Tokens of a kind, and programs' tokens of a project, in the order in which they are listed.
CREATE INDEX token_age ON token (kind, created_at, id);
CREATE INDEX token_project ON token (project, created_at, id) WHERE kind = 'api' AND project IS NOT NULL;
