"""`postdate run` under a service that died: one line, exit code 1, and a restart that finds it well again."""

from cli_cases import process

from postdate.local import Azurite

QUICK = ("--lookahead", "0", "--idle-interval", "0.5", "--probe-interval", "0.2")
WINDOW = ("--time-to-trigger-fetch-circuit-breaker", "2s")


def test_run_ends_with_1_and_one_line_when_the_service_is_gone_for_longer_than_the_window(
    cli, azurite, endpoint_name, monkeypatch
):
    with Azurite() as own:
        monkeypatch.setenv("POSTDATE_CONNECTION", own.connection_string)
        monkeypatch.setenv("POSTDATE_ENDPOINT", endpoint_name)
        assert cli("setup").code == 0
        with process("run", *QUICK, *WINDOW) as running:
            running.line_with("term_began")
            own.stop()
            running.line_with("breaker_triggered")
            assert running.wait() == 1
        (complaint,) = [line for line in running.seen if line.startswith("postdate: error: ")]
        assert "Failed to" in complaint
        assert "127.0.0.1" in complaint
        assert "postdate doctor" in complaint
        assert not any("Traceback" in line for line in running.seen)
        # The platform starts it anew: unreachable as long as nobody listens, and then all is well.
        assert cli("run").code == 3
        own.start()
        with process("run", *QUICK, *WINDOW) as running:
            running.line_with("term_began")
            assert running.stop() == 0


def test_run_stays_up_when_the_service_is_back_within_the_window(cli, azurite, endpoint_name, monkeypatch):
    with Azurite() as own:
        monkeypatch.setenv("POSTDATE_CONNECTION", own.connection_string)
        monkeypatch.setenv("POSTDATE_ENDPOINT", endpoint_name)
        assert cli("setup", "--queue", "orders").code == 0
        with process("run", *QUICK, "--log-format", "json") as running:
            running.line_with("term_began")
            own.stop()
            running.line_with("breaker_armed")
            own.start()
            running.line_with("breaker_disarmed")
            cli("schedule", "orders", "hello", "--delay", "1", "--lookahead", "0")
            received = cli("receive", "orders", "--idle", "20", "--count", "1", "--json").object
            assert received["body"] == "hello"
            assert running.stop() == 0
