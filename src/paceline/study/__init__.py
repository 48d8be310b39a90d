"""Many runs as one experiment: expand a matrix, order it fairly, execute it so that nothing finished is lost or done twice."""
