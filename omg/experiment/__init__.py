"""One run: build its parts, train, test, save, resume."""
