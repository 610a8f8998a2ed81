"""Settings: code before environment before file before default, and each value says where it came from."""

from datetime import timedelta

import pytest

from postdate.errors import ConfigurationError
from postdate.model.envelope import EnvelopeForm
from postdate.settings import (
    FILE_VARIABLE,
    PREFIX,
    Guarantee,
    Settings,
    cache_folder,
    child_environment,
    explain_settings,
    in_ci,
    load_settings,
    show_value,
)


@pytest.fixture(autouse=True)
def environ(monkeypatch):
    """An environment of our own."""
    variables: dict[str, str] = {}
    monkeypatch.setattr("os.environ", variables)
    return variables


@pytest.fixture
def write_file(environ, tmp_path):
    def write(text):
        path = tmp_path / "postdate.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        environ[FILE_VARIABLE] = str(path)

    return write


def test_code_wins_over_environment_over_file_over_default(environ, write_file):
    write_file('lookahead = 10\nidle_interval = "20s"\nqueue = "from-file"')
    environ["POSTDATE_LOOKAHEAD"] = "40s"
    environ["POSTDATE_IDLE_INTERVAL"] = "1m"
    given = {"lookahead": 5}
    settings = load_settings(**given)
    assert settings.lookahead == timedelta(seconds=5)
    assert settings.idle_interval == timedelta(minutes=1)
    assert settings.queue == "from-file"
    assert settings.probe_interval == timedelta(seconds=3)
    lines = {line.name: line for line in explain_settings(settings, given)}
    assert (lines["lookahead"].source, lines["lookahead"].value) == ("code", "5s")
    assert (lines["idle_interval"].source, lines["idle_interval"].value) == ("environment", "1m")
    assert (lines["queue"].source, lines["queue"].value) == ("file", "from-file")
    assert (lines["probe_interval"].source, lines["probe_interval"].value) == ("default", "3s")
    assert lines["probe_interval"].variable == "POSTDATE_PROBE_INTERVAL"


def test_without_any_source_there_are_only_defaults():
    settings = load_settings()
    assert settings == Settings()
    assert {line.source for line in explain_settings(settings)} == {"default"}


def test_every_setting_has_a_meaning_a_variable_and_a_line():
    lines = explain_settings(load_settings())
    assert [line.name for line in lines] == list(Settings.model_fields)
    for line in lines:
        assert line.meaning.endswith("."), line.name
        assert line.variable == PREFIX + line.name.upper()
        assert "\n" not in line.value


def test_an_environment_that_broke_since_can_still_be_explained(environ):
    settings = load_settings(queue="orders")
    environ["POSTDATE_ALIASES"] = "{"
    assert {line.value for line in explain_settings(settings) if line.name == "queue"} == {"orders"}


def test_none_in_code_means_not_given(environ):
    environ["POSTDATE_QUEUE"] = "orders"
    settings = load_settings(queue=None)
    assert settings.queue == "orders"
    (line,) = [line for line in explain_settings(settings, {"queue": None}) if line.name == "queue"]
    assert line.source == "environment"


def test_an_empty_variable_counts_as_not_set(environ):
    environ["POSTDATE_LOOKAHEAD"] = environ["POSTDATE_DISABLE_DELAYED_DELIVERY"] = ""
    settings = load_settings()
    assert settings.lookahead == timedelta(seconds=30)
    assert {line.source for line in explain_settings(settings)} == {"default"}


def test_the_case_of_a_variable_does_not_matter(environ):
    environ["postdate_queue"] = "orders"
    assert load_settings().queue == "orders"


def test_a_variable_that_is_no_setting_does_not_keep_a_process_from_starting(environ):
    # A newer release, a sidecar or a typo: other processes read the same environment. Code and file are ours.
    environ["POSTDATE_NOT_YET_INVENTED"] = "1"
    assert load_settings() == Settings()


def test_a_setting_in_code_or_file_that_does_not_exist_is_refused(write_file):
    with pytest.raises(ConfigurationError, match=r"no setting 'lokahead'; `postdate config` lists them"):
        load_settings(lokahead=5)
    write_file("lokahead = 5")
    with pytest.raises(ConfigurationError, match="no setting 'lokahead'"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, True) for text in ("1", "true", "True", "TRUE", "on", "yes")),
        *((text, False) for text in ("0", "false", "False", "off", "no")),
    ],
)
def test_a_switch_has_the_usual_forms(environ, text, expected):
    environ["POSTDATE_DISABLE_DELAYED_DELIVERY"] = text
    assert load_settings().disable_delayed_delivery is expected


@pytest.mark.parametrize("text", ["2", "maybe", "-"])
def test_a_switch_takes_no_other_form(environ, text):
    environ["POSTDATE_DISABLE_DELAYED_DELIVERY"] = text
    with pytest.raises(ConfigurationError, match=r"^POSTDATE_DISABLE_DELAYED_DELIVERY: "):
        load_settings()


def test_tables_are_json_in_the_environment_and_tables_in_the_file(environ, write_file):
    write_file('[envelopes]\norders = "raw"\n[aliases]\nother = "acmeother"')
    settings = load_settings()
    assert settings.envelope_form("orders") is EnvelopeForm.RAW
    assert settings.envelope_form("billing") is EnvelopeForm.NSERVICEBUS
    assert list(settings.aliases) == ["other"]
    environ["POSTDATE_ENVELOPES"] = '{"billing": "raw-text"}'
    assert load_settings().envelope_form("billing") is EnvelopeForm.RAW_TEXT


@pytest.mark.parametrize("name", ["ENVELOPES", "ALIASES"])
def test_broken_json_is_refused_by_name_with_the_form_that_would_do(environ, name):
    for broken in ("{", "orders=raw", "{'a': 'b'}"):
        environ[f"POSTDATE_{name}"] = broken
        with pytest.raises(ConfigurationError) as refused:
            load_settings()
        assert (
            str(refused.value)
            == f'POSTDATE_{name} is not valid JSON; write an object like {{"name": "value"}}'
        )


@pytest.mark.parametrize("value", ["[]", '"raw"', "5", '{"orders": "envelope"}', '{"orders": null}'])
def test_json_of_another_shape_is_refused_by_name(environ, value):
    environ["POSTDATE_ENVELOPES"] = value
    with pytest.raises(ConfigurationError, match=r"^POSTDATE_ENVELOPES: ") as refused:
        load_settings()
    assert "\n" not in str(refused.value)


def test_a_settings_file_that_is_not_there_is_refused(environ, tmp_path):
    environ[FILE_VARIABLE] = str(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match=r"none\.toml: No such file"):
        load_settings()


@pytest.mark.parametrize("text", ["lookahead", "= 5", 'a = "', b"\xff", "a = 1\na = 2"])
def test_a_settings_file_that_is_no_toml_is_refused(write_file, text):
    write_file(text)
    with pytest.raises(ConfigurationError, match="is not TOML") as refused:
        load_settings()
    assert "\n" not in str(refused.value)


def test_what_is_shown_is_what_people_would_write():
    assert show_value(None) == ""
    assert show_value(True) == "true"
    assert show_value(timedelta(seconds=90)) == "1m30s"
    assert show_value({"a": EnvelopeForm.RAW, "b": False}) == "a=raw, b=false"
    assert show_value(Guarantee.AT_LEAST_ONCE) == "at_least_once"
    assert show_value(5) == "5"


def test_settings_cannot_be_changed_after_they_were_loaded():
    with pytest.raises(ValueError, match="frozen"):
        load_settings().queue = "other"


def test_downloads_are_kept_where_the_desktop_says_or_in_the_home_folder(environ, tmp_path):
    environ["XDG_CACHE_HOME"] = str(tmp_path)
    assert cache_folder() == tmp_path / "postdate"
    environ |= {"XDG_CACHE_HOME": "relative", "HOME": str(tmp_path)}
    assert cache_folder() == tmp_path / ".cache" / "postdate"


def test_a_process_that_we_start_has_our_environment_with_changes(environ):
    environ |= {"KEPT": "1", "CHANGED": "1", "DROPPED": "1"}
    child = child_environment(CHANGED="2", DROPPED=None, ADDED="3")
    assert {name: child.get(name) for name in ("KEPT", "CHANGED", "ADDED")} == {
        "KEPT": "1",
        "CHANGED": "2",
        "ADDED": "3",
    }
    assert "DROPPED" not in child


@pytest.mark.parametrize(
    ("value", "expected"), [("", False), ("0", False), ("False", False), ("1", True), ("true", True)]
)
def test_a_build_server_is_known_by_its_variable(environ, value, expected):
    assert in_ci() is False
    environ["CI"] = value
    assert in_ci() is expected
