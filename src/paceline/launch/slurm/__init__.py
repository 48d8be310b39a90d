"""Through Slurm: a script rendered from specs (pure), submitted, watched and, if asked, cancelled. The ranks are started by the job."""
