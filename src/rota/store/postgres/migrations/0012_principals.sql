-- Workers that joined under the former release are principals, too, and can be disabled.
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
SELECT DISTINCT name, 'worker', '', name, name, '', 'migration', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM token WHERE kind = 'worker' AND revoked_at IS NULL AND name <> ''
ON CONFLICT DO NOTHING;

-- A worker of a name that somebody else has is not that somebody: it is nobody until it joins again.
UPDATE token SET principal = coalesce((SELECT handle FROM principal
    WHERE handle = token.name AND (kind = 'worker' OR created_by = 'migration')), '')
WHERE kind = 'worker' AND revoked_at IS NULL;

-- Groups of a user as the provider told them last, also when no session is left: for advice, not for rights.
ALTER TABLE principal ADD COLUMN groups TEXT NOT NULL DEFAULT '[]'; -- JSON: names
UPDATE principal SET groups = coalesce((SELECT login_session.groups FROM login_session
    WHERE login_session.issuer = principal.issuer AND login_session.subject = principal.subject
    ORDER BY refreshed_at DESC LIMIT 1), '[]')
WHERE kind = 'user';
