"""The local storage service: it starts, keeps data, and never outlives the process that started it."""

from postdate.settings import Settings


def test_fixtures_give_an_endpoint_of_its_own(postdate_settings: Settings, endpoint_name, azurite):
    assert postdate_settings.endpoint == endpoint_name
    assert postdate_settings.account().connection_string.get_secret_value() == azurite.connection_string
    assert postdate_settings.own_queue == endpoint_name
