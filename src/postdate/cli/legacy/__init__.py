"""`postdate legacy`: leaving the timeout manager of older endpoints behind."""
