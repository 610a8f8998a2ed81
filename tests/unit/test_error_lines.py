"""What a log line tells of an error is bounded, whatever the error's text; the error queue has it all."""

from receiver_cases import always_failing, open_scene

from postdate.engine.verdicts import line_of
from postdate.events import ImmediateRetryAsked, MessageFailed
from postdate.model import headers as h

BOUND = 1_100


def test_a_short_text_is_told_whole_and_only_its_first_line():
    assert line_of(ValueError("no\nmore")) == "ValueError: no"
    assert line_of(ValueError()) == "ValueError"


async def test_a_text_of_20_000_characters_is_cut_in_log_lines_and_kept_in_the_error_queue():
    text = "x" * 20_000
    async with open_scene() as scene:
        options = {"immediate_retries": 1, "delayed_retries": 0}
        endpoint = always_failing(scene.endpoint(**options), RuntimeError(text), [])
        await scene.put()
        await scene.run_for(endpoint, seconds=5)
        (retried,), (failed,) = scene.log.of(ImmediateRetryAsked), scene.log.of(MessageFailed)
        for line in (retried.error, failed.error):
            assert line.startswith("RuntimeError: xxx")
            assert line.endswith("x …")
            assert len(line) < BOUND
        (message,) = scene.messages()
        assert len(message.headers[h.EXCEPTION_MESSAGE] or "") > BOUND
