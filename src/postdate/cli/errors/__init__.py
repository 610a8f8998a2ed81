"""`postdate errors`: one file per command, and what they share."""
