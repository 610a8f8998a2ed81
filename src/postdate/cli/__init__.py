"""The command `postdate`: one file per command, put together in `main`."""
