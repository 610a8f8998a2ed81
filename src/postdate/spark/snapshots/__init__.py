"""Jobs `snapshot` and `restore`: the waiting rows to Parquet, and back."""

from postdate.spark.snapshots.job import snapshot
from postdate.spark.snapshots.manifests import Manifest, snapshots
from postdate.spark.snapshots.restoring import Restored, restore

__all__ = ["Manifest", "Restored", "restore", "snapshot", "snapshots"]
