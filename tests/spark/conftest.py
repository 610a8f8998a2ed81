"""One Spark session for all tests here, and waiting rows on a real storage service."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from postdate import Endpoint, Outgoing
from postdate.settings import Settings
from postdate.spark import SettingsReference, local_session
from postdate.spark.reference import shared_with_tasks


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("local[2,4]", name="postdate tests")
    yield session
    session.stop()


@pytest.fixture
def reference(postdate_settings: Settings) -> Iterator[SettingsReference]:
    """Where tasks find the settings of this test's endpoint, which is set up, with queue `target`."""

    async def set_up() -> None:
        async with Endpoint(postdate_settings) as endpoint:
            await endpoint.setup("target")

    asyncio.run(set_up())
    with shared_with_tasks(postdate_settings) as found:
        yield found


@pytest.fixture
def on_endpoint(postdate_settings: Settings) -> Callable[[Callable[[Endpoint], Any]], Any]:
    """Runs an asynchronous function of the endpoint to its end."""

    def run(work: Callable[[Endpoint], Any]) -> Any:
        async def opened() -> Any:
            async with Endpoint(postdate_settings) as endpoint:
                return await work(endpoint)

        return asyncio.run(opened())

    return run


@pytest.fixture
def schedule(
    on_endpoint: Callable[[Callable[[Endpoint], Any]], Any], reference: SettingsReference
) -> Callable[[Sequence[Outgoing]], None]:
    """Makes waiting rows of messages."""

    def store(messages: Sequence[Outgoing]) -> None:
        answer = on_endpoint(lambda endpoint: endpoint.schedule_many(messages))
        assert not answer.failures, answer.failures

    return store
