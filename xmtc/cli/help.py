"""Help pages: plain names for the types of options, and usage lines such as `xmtc train [OPTIONS] CORPUS...`."""

from __future__ import annotations

from typing import Any, ClassVar

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

INPUT, OUTPUT, PERFORMANCE, ADVANCED = "Input", "Output", "Performance", "Advanced"  # panels of options
RERANKING = "Re-ranking"
METAVAR_BY_TYPE = {"str": "TEXT", "int": "N", "int range": "N", "float": "FLOAT", "float range": "FLOAT"}
METAVAR_BY_TYPE |= {"path": "PATH", "list[str]": "TEXT", "bool": ""}


class PlainArgument(TyperArgument):
    """Argument that is shown by its name alone, without its Python type."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return None

    def _usage_display_name(self) -> str:
        name = self.display_name_raw
        if self.nargs != 1 and "..." not in name:
            name += "..."
        return name if self.required else f"[{name}]"

    def _rich_display_name(self) -> str:
        return self.display_name_raw


def show_plainly(parameter: Any, context: Any) -> None:
    if isinstance(parameter, TyperArgument):
        parameter.__class__ = PlainArgument
    elif isinstance(parameter, TyperOption) and parameter.metavar is None:
        name = "bool" if parameter.is_flag else describe_type(parameter, context)
        parameter.metavar = METAVAR_BY_TYPE.get(name, name)


def describe_type(parameter: TyperOption, context: Any) -> str:
    """Return the name of an option's type; typer before 0.29 has no `display_type`."""
    display_type = getattr(parameter, "display_type", None)
    return str(getattr(parameter, "type", "TEXT")) if display_type is None else display_type(context).strip("<>")


def join_lines(text: str) -> str:
    """Return the text with each paragraph on one line; typer would keep the line breaks of the docstring."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class PlainCommand(TyperCommand):
    running: ClassVar[list[str]] = ["xmtc"]  # words of the command that was started last

    def __init__(self, *args: Any, help: str | None = None, **options: Any) -> None:
        super().__init__(*args, help=join_lines(help or ""), **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        PlainCommand.running = ["xmtc", *ctx.command_path.split()[1:], *args]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            show_plainly(parameter, ctx)
        return parameters


class PlainGroup(TyperGroup):
    """Group with plain help, whose commands are in the order of `command_order`, which typer would not keep."""

    command_order: tuple[str, ...] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return [*(name for name in self.command_order if name in names)] or names

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            show_plainly(parameter, ctx)
        return parameters
