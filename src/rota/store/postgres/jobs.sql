-- name: select_jobs_of_user
-- Jobs that one user made, in some projects or all, in order of these and of their names. Found between two ends and
-- sorted by all columns of their index: it leads, however many jobs there seem to be of each user.
SELECT * FROM current_job
WHERE created_by >= :created_by AND created_by <= :created_by
    AND (coalesce(project, ''), name) > (:after_project, :after_name)
    AND (:any_project = 1 OR coalesce(project, '') = ANY(:projects))
    AND (CAST(:name_like AS TEXT) IS NULL OR lower(name) LIKE lower(:name_like) ESCAPE '\')
    AND (CAST(:set_name AS TEXT) IS NULL OR set_name = :set_name)
ORDER BY created_by, project, name LIMIT :limit;
