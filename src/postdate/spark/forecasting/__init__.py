"""Job `forecast`: what falls due when, and how long it takes at a given rate."""

from postdate.spark.forecasting.job import Forecast, forecast

__all__ = ["Forecast", "forecast"]
