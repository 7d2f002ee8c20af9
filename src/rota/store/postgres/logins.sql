-- name: keys_of_logins
-- How many values each key has sealed: the second part of each is the id of its key.
SELECT split_part(value, ':', 2) AS key_id, count(*) AS count
FROM (SELECT refresh_token AS value FROM login_session WHERE refresh_token IS NOT NULL
    UNION ALL SELECT id_token FROM login_session WHERE id_token IS NOT NULL) AS sealed
GROUP BY 1 ORDER BY 1;
