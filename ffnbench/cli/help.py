"""How `--help` reads: names are never cut. Where there is room the meaning stands beside a flag, else below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ffnbench.report.tables.text import Terminal

BESIDE = 76  # columns, from which on the meaning stands beside the name
WIDEST, LEFT = 100, 28  # columns of all, and of names
ARGUMENTS, OPTIONS = "Arguments", "Options"


def examples(*lines: str, docs: str) -> str:
    """The end of a command's help: what can be typed, and where more is said."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines), "", f"More: {docs}"])


class Command(TyperCommand):
    """A command with a help of its own."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it."""
        panels: dict[str, list[tuple[Text, Text]]] = {}
        for param in self.get_params(ctx):
            if not getattr(param, "hidden", False):
                panel = getattr(param, "rich_help_panel", None)
                default = ARGUMENTS if isinstance(param, TyperArgument) else OPTIONS
                panels.setdefault(panel or default, []).append(_row(param, ctx))
        last = {OPTIONS: panels.pop(OPTIONS)} if OPTIONS in panels else {}  # --help itself
        _print(self, ctx, panels | last)


class FlagGroup(TyperGroup):
    """The commands together, with a help of its own."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it."""
        commands = [self.commands[name] for name in self.list_commands(ctx)]
        shown = [(Text(str(c.name), "bold cyan"), Text((c.help or "").partition("\n\n")[0])) for c in commands]
        options = [_row(param, ctx) for param in self.get_params(ctx)]
        _print(self, ctx, {"Commands": shown, OPTIONS: options})


def _print(command: Any, ctx: Any, panels: dict[str, list[tuple[Text, Text]]]) -> None:
    console = Terminal(highlight=False, width=min(Terminal().width, WIDEST))
    left = min(LEFT, max(len(name) for rows in panels.values() for name, _ in rows))
    _put(console, Text(f"Usage: {ctx.command_path} [OPTIONS]{_arguments(command, ctx)}"))
    for paragraph in (command.help or "").split("\n\n"):
        _put(console, Text(), Text(" ".join(paragraph.split())))
    for title, rows in panels.items():
        _put(console, Text(), Text(title, "bold"))
        for name, meaning in rows:
            _put_row(console, name, meaning, left)
    if command.epilog:
        console.print()
        for line in command.epilog.splitlines():
            _put(console, Text(line.strip()), indent=len(line) - len(line.lstrip()))


def _arguments(command: Any, ctx: Any) -> str:
    if isinstance(command, TyperGroup):
        return " COMMAND [ARGS]..."
    names = [(one, one.metavar or one.name) for one in command.get_params(ctx) if isinstance(one, TyperArgument)]
    return "".join(f" {name}" if one.required else f" [{name}]" for one, name in names)


def _put(console: Console, *texts: Text, indent: int = 0) -> None:
    """Texts one below the other, wrapped, and without blanks at the end of a line."""
    for text in texts:
        for line in text.wrap(console, console.width - indent) or [Text()]:
            line.rstrip()
            console.print(Text(" " * indent) + line if line else "", soft_wrap=True)


def _put_row(console: Console, name: Text, meaning: Text, left: int) -> None:
    if console.width < BESIDE:
        _put(console, name, indent=2)
        return _put(console, meaning, indent=6)
    at = 2 + left + 2
    lines = meaning.wrap(console, console.width - at)
    if len(name) > left:
        _put(console, name, indent=2)
        name = Text()
    for number, line in enumerate(lines):
        line.rstrip()
        before = Text("  ") + name if number == 0 else Text()
        before.pad_right(at - len(before))
        console.print(before + line, soft_wrap=True)


def _row(param: Any, ctx: Any) -> tuple[Text, Text]:
    """The name of a flag or an argument with what stands for its value; and what it means."""
    if isinstance(param, TyperArgument):
        name = Text(str(param.metavar or param.name), "bold cyan")
        return name, _meaning(param, ctx)
    shorts = [one for one in param.opts if not one.startswith("--")]
    name = Text(", ".join((*shorts, _first_long(param.opts))), "bold cyan")
    if param.secondary_opts:
        name.append(" / ").append(_first_long(param.secondary_opts), "bold cyan")
    if not (param.is_flag or param.count) and param.metavar:
        name.append(f" {param.metavar}", "yellow")
    return name, _meaning(param, ctx)


def _first_long(names: Sequence[str]) -> str:
    """The main name: further ones are spellings that people try."""
    return next((one for one in names if one.startswith("--")), names[0])


def _meaning(param: TyperOption | TyperArgument, ctx: Any) -> Text:
    found = Text.from_markup(" ".join((param.help or "").split()))
    default = param.get_default(ctx, call=False)
    if isinstance(default, list):  # of a flag whose values add up to one list
        default = ",".join(map(str, default))
    if "[default:" in found.plain or default is None or default == "" or isinstance(default, bool | tuple):
        return found
    return found.append(f" [default: {_default(param, default)}]")


def _default(param: TyperOption | TyperArgument, value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{text}s" if param.metavar == "TIME" else text
