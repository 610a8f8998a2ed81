"""A forecast as a picture: load by hour, and the minutes that are listed with what they leave behind."""

from pathlib import Path

from postdate.errors import ConfigurationError, UsageError
from postdate.spark.forecasting.job import Forecast

#: Destinations with a colour of their own; the others are drawn together.
_SHOWN = 8
_OTHERS = "others"


def check_plot(path: Path) -> None:
    """Find out before the work whether a picture can be drawn there.

    Raises:
        ConfigurationError: matplotlib is missing.
        UsageError: the folder is.
    """
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415 - late: few want a picture
    except ImportError:
        raise ConfigurationError(
            "matplotlib is not installed, and the plot needs it; pip install 'postdate[spark]'"
        ) from None
    if path.suffix.lower() != ".png" or not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: the plot is a .png file in a folder that exists")


def plot(forecast: Forecast, path: Path) -> None:
    """Draw it into a PNG file; one of that name is replaced. Raises as `check_plot`."""
    check_plot(path)
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    figure = Figure(figsize=(10, 7), layout="constrained")
    by_hour, by_minute = figure.subplots(2, 1)
    floor = [0] * len(forecast.hours)
    hours = [hour.hour for hour in forecast.hours]
    for name, messages in _layers(forecast).items():
        by_hour.bar(hours, messages, bottom=floor, width=1 / 24, align="edge", label=name or None)
        floor = [low + high for low, high in zip(floor, messages, strict=True)]
    by_hour.set(title=f"{forecast.endpoint}: {forecast.messages:,} messages wait", ylabel="messages per hour")
    if forecast.destinations:
        by_hour.legend(fontsize="small")
    minutes = [one.minute for one in forecast.minutes]
    by_minute.step(minutes, [one.messages for one in forecast.minutes], where="post", label="due")
    by_minute.step(minutes, [one.backlog for one in forecast.minutes], where="post", label="backlog")
    by_minute.set(
        title=f"the first {len(minutes):,} minutes with messages, at {forecast.rate:g} messages a second",
        ylabel="messages",
        xlabel="due (UTC)",
    )
    by_minute.legend(fontsize="small")
    figure.savefig(path, format="png", dpi=110)


def _layers(forecast: Forecast) -> dict[str, list[int]]:
    """Messages of each hour, by destination, from the largest on."""
    if not forecast.destinations:
        return {"": [hour.messages for hour in forecast.hours]}
    shown = list(forecast.destinations)[:_SHOWN]
    layers = {name: [hour.destinations.get(name, 0) for hour in forecast.hours] for name in shown}
    if len(forecast.destinations) > _SHOWN:
        layers[_OTHERS] = [
            hour.messages - sum(hour.destinations.get(name, 0) for name in shown) for hour in forecast.hours
        ]
    return layers
