"""`postdate spark drain`: what it prints, its exit codes, and Ctrl-C."""

import json
import signal
import subprocess
import sys

import pytest
from bulk_drain_cases import Account, serving

from postdate.cli.main import main
from postdate.settings import child_environment


@pytest.fixture
def account(postdate_settings):
    """An endpoint with a queue and an error queue of its own."""
    return Account(postdate_settings)


def started(account, *arguments):
    """The command, as a process of its own."""
    settings = account.settings
    return subprocess.Popen(
        [sys.executable, "-m", "postdate", "spark", "drain", "--json", "--master", "local[2,4]", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(
            POSTDATE_ENDPOINT=settings.endpoint,
            POSTDATE_CONNECTION=settings.connection.get_secret_value(),
            POSTDATE_ERROR_QUEUE=settings.error_queue,
        ),
    )


def test_ctrl_c_ends_it_cleanly_and_the_same_command_goes_on(account):
    account.backlog(900)
    with started(account, "--rate", f"{account.queue}=60") as command:
        account.until(lambda: account.in_queue() >= 60)
        command.send_signal(signal.SIGINT)
        printed, remarks = command.communicate()
    told = json.loads(printed)
    assert command.returncode == 130, remarks
    assert (told["end"], told["possible_duplicates"]) == ("stopped", 0)
    assert told["left"] == 900 - told["handed_over"] == account.waiting() > 0
    assert remarks.splitlines()[-1] == "postdate: error: interrupted"
    with started(account) as command:
        printed, remarks = command.communicate()
    rest = json.loads(printed)
    assert (command.returncode, rest["end"]) == (0, "done"), remarks
    assert rest["by_destination"] == {account.queue: told["left"]}
    assert rest["term"] == told["term"] + 1
    copies = account.taken()
    assert len(copies) == len({one.message_id for one in copies}) == 900


def test_it_says_for_whom_it_waits_and_can_be_stopped(account):
    def leads():
        record = account.run(lambda endpoint: endpoint.parts.backend.lease.holder())
        return record is not None and record.leased

    with serving(account.settings, lambda _: None):
        account.until(leads)
        with started(account) as command:
            said = command.stderr.readline()
            command.send_signal(signal.SIGINT)
            _, remarks = command.communicate()
    assert said.endswith(" leads; waiting until it ends. --take-over asks it to step aside\n")
    assert (command.returncode, remarks) == (130, "postdate: error: interrupted\n")


@pytest.mark.parametrize("text", ["invoices", "invoices=many", "=5x"])
def test_a_rate_that_is_none_is_refused_before_anything_starts(text, capsys):
    assert main(["spark", "drain", "--rate", text]) == 2
    said = capsys.readouterr().err
    assert said == f"postdate: error: --rate {text!r}: write QUEUE=NUMBER, like invoices=100\n"
