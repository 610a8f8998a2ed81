"""`python -m postdate`, the same as the command `postdate`."""

from postdate.cli.main import entry

if __name__ == "__main__":
    entry()
