"""matplotlib, where there is no screen: of the extra `bench`, so loaded only when something is drawn."""

from pathlib import Path
from typing import Any


def pyplot() -> Any:
    """`matplotlib.pyplot`, drawing into files.

    Late, since the figures do without it; and behind the choice of the backend, which it reads when loaded.
    """
    import matplotlib as mpl  # noqa: PLC0415 - of an extra that need not be there

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - reads the backend when loaded

    return plt


def save(figure: Any, path: Path) -> None:
    """Write a picture, without date and version so that the same figures give the same file; close it."""
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot().close(figure)
