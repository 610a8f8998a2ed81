"""The page on scale quotes the figures of the stored run, and nothing else."""

import json
import re
from pathlib import Path

import pytest

from bench.simulator.report import TABLES, table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explain/scale.md").read_text()
FIGURES = json.loads((ROOT / "bench/simulator/results.json").read_text())
BLOCKS = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", list(TABLES))
def test_each_table_stands_in_the_page_as_the_program_printed_it(name):
    title, columns = TABLES[name]
    assert table(title, columns, FIGURES["results"][name]) in BLOCKS


def test_no_message_of_the_stored_run_was_lost_early_or_doubled():
    runs = [r for records in FIGURES["results"].values() for r in records if "messages" in r]
    assert len(runs) > 50
    assert {(r["lost"], r["early"], r["duplicated"]) for r in runs} == {(0, 0, 0)}


def test_each_picture_is_there():
    pictures = re.findall(r"!\[[^\]]+\]\(\.\./images/(scale-[a-z-]+\.png)\)", PAGE)
    assert len(pictures) == 5
    for picture in pictures:
        assert (ROOT / "docs/images" / picture).stat().st_size > 5_000
