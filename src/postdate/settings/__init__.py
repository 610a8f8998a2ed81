"""Typed settings, from code, the environment (`POSTDATE_*`) or a TOML file, in this order."""

from postdate.settings.accounts import Account
from postdate.settings.environment import (
    FILE_VARIABLE,
    cache_folder,
    child_environment,
    in_ci,
    names_with,
    set_default,
    settings_file,
    variable,
)
from postdate.settings.fields import PREFIX, BackendName, Duration, Guarantee, LargeBodies, LeaseTarget
from postdate.settings.loading import SettingLine, explain_settings, load_settings, show_value
from postdate.settings.model import Settings
from postdate.settings.prices import list_prices, load_prices

__all__ = [
    "FILE_VARIABLE",
    "PREFIX",
    "Account",
    "BackendName",
    "Duration",
    "Guarantee",
    "LargeBodies",
    "LeaseTarget",
    "SettingLine",
    "Settings",
    "cache_folder",
    "child_environment",
    "explain_settings",
    "in_ci",
    "list_prices",
    "load_prices",
    "load_settings",
    "names_with",
    "set_default",
    "settings_file",
    "show_value",
    "variable",
]
