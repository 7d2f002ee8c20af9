-- name: select_templates
-- Templates of a project by name.
SELECT * FROM cart_template WHERE project = :project AND (:any_name = 1 OR name = ANY(:names))
ORDER BY name;

-- name: insert_template
-- A template that is new.
INSERT INTO cart_template (project, name, version, document, digest, set_name, shard, next_at, anchor,
    updated_by, updated_at)
VALUES (:project, :name, 1, :document, :digest, :set_name, :shard, :next_at, :anchor, :actor, :now)
ON CONFLICT DO NOTHING;

-- name: update_template
-- A template that is as somebody saw it.
UPDATE cart_template SET version = version + 1, document = :document, digest = :digest,
    set_name = :set_name, next_at = :next_at, anchor = :anchor, updated_by = :actor, updated_at = :now
WHERE project = :project AND name = :name AND version = :version
    AND coalesce(next_at, -1) = coalesce(CAST(:expected_next_at AS BIGINT), -1);

-- name: delete_template
-- The same, to be forgotten.
DELETE FROM cart_template WHERE project = :project AND name = :name AND version = :version;

-- name: due_templates
-- Templates of these shards whose time has come.
SELECT * FROM cart_template WHERE next_at <= :now AND shard = ANY(:shards) ORDER BY next_at LIMIT :limit;

-- name: next_due_template
-- When the next template becomes a cart by itself.
SELECT min(next_at) AS next_at FROM cart_template WHERE next_at IS NOT NULL;

-- name: move_template
-- A due time of a template is answered.
UPDATE cart_template SET next_at = :next_at
WHERE project = :project AND name = :name AND version = :version AND next_at = :due_at;
