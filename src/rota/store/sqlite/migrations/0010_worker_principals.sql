-- Workers that joined under the former release are principals, too, and can be disabled.
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
SELECT DISTINCT name, 'worker', '', name, name, '', 'migration', CAST(strftime('%s', 'now') AS INTEGER) * 1000000
FROM token WHERE kind = 'worker' AND revoked_at IS NULL AND name <> ''
ON CONFLICT DO NOTHING;

-- A worker of a name that somebody else has is not that somebody: it is nobody until it joins again.
UPDATE token SET principal = coalesce((SELECT handle FROM principal
    WHERE handle = token.name AND (kind = 'worker' OR created_by = 'migration')), '')
WHERE kind = 'worker' AND revoked_at IS NULL;
