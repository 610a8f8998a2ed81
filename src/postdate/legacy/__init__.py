"""The legacy timeout manager: delivers what older endpoints left in their timeout store.

docs/explain/legacy.md tells how it works, and why beside an older instance nothing is lost.
"""
