"""Types of jobs as a package brings them: two that work, and some that do not."""
