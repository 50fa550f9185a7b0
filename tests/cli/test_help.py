"""Help pages of all commands: usage lines, panels, and one grammar for the options of all commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperCommand
from typer.main import get_command
from typer.testing import CliRunner

from xmtc.cli import ALL_COMMANDS, app, main

PANELS = {None, "Input", "Output", "Performance", "Advanced", "Limits", "Re-ranking"}
TWO_KINDS = {"--output", "--threshold"}  # a model, file or folder; a number, or also the word tuned


def iterate_commands(command: Any, name: str = "") -> Iterator[tuple[str, TyperCommand]]:
    inner = getattr(command, "commands", {})
    if not inner:
        yield name.strip(), command
    for part, each in inner.items():
        yield from iterate_commands(each, f"{name} {part}")


COMMANDS = dict(iterate_commands(get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_in_80_columns(name):
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"}, prog_name="xmtc")
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert f"Usage: xmtc {name} [OPTIONS]" in result.output
    assert "<bool>" not in result.output
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", ["update", "vocab migrate"])
def test_paragraphs_are_wrapped_at_the_width_of_the_terminal(name):
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "300"}, prog_name="xmtc")
    description = result.output.partition("╭")[0].strip().splitlines()
    sentences = [line.strip() for line in description if line.strip()]
    assert len(sentences) == 3  # usage, first and second paragraph
    assert all(sentence.endswith(".") for sentence in sentences[1:])


def test_an_option_has_the_same_value_in_all_commands():
    metavars = defaultdict(set)
    for command in COMMANDS.values():
        for parameter in command.get_params(command.context_class(command)):
            if parameter.param_type_name == "option":
                assert getattr(parameter, "rich_help_panel", None) in PANELS
                metavars[parameter.opts[-1]].add(parameter.metavar)
    assert {name: found for name, found in metavars.items() if len(found) > 1 and name not in TWO_KINDS} == {}


def test_help_of_options_ends_with_a_full_stop():
    for name, command in COMMANDS.items():
        for parameter in command.params:
            assert parameter.help.endswith("."), (name, parameter.name)


def test_commands_that_change_a_model_have_an_output():
    for name in ("calibrate", "thresholds", "vocab attach", "vocab filter"):
        outputs = [parameter.help for parameter in COMMANDS[name].params if "--output" in parameter.opts]
        assert outputs == ["Model folder to write, instead of changing MODEL in place."]


def test_xmtc_alone_shows_three_commands(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["xmtc"])
    with pytest.raises(SystemExit) as end:
        main()
    shown = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("  xmtc ")]
    assert end.value.code == 0
    assert shown == ["demo", "train", "predict"]
    assert set(shown) <= set(ALL_COMMANDS)
