"""What `postdate bench` and `python -m bench` measure, and how: the same workloads for every contender."""
