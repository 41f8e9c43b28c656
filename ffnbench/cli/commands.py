"""Commands as Typer has them: functions whose parameters are options of cli/options.py,
each in its feature's folder.

A command takes Typer's context: `request_from_typed(CompareRequest, ctx)` and
`output_from_typed(ctx)` make values of what was typed, and of what a pyproject.toml
sets. The function gives the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info

from ffnbench.choices import FIGURE_SUFFIXES, PAGE_SUFFIX, SUFFIXES
from ffnbench.cli.defaults import (
    Settings,
    defaults_note,
    found_settings,
    is_typed,
    set_by_file,
)
from ffnbench.cli.words import by_place
from ffnbench.common.errors import FfnbenchError
from ffnbench.planning.fields import read
from ffnbench.request import AnyRequest, Output, Request

if TYPE_CHECKING:
    from ffnbench.plan import Plan
    from ffnbench.planning.hardware import Hardware
    from ffnbench.report.destination import Destination

R = TypeVar("R", bound=Request | Output)
# the file of each command, in the order of the help; it is loaded when the command is
# typed
FILES = {
    "compare": "compare.command",
    "cost": "compare.command",
    "report": "cli.report_list_env",
    "block": "block.command",
    "check": "gate.command",
    "ab": "gate.command",
    "plot-activations": "activations.command",
    "activations": "activations.command",
    "list": "cli.report_list_env",
    "env": "cli.report_list_env",
    "inspect": "inspecting.command",
}
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
HELP_ALL = "--help-all"


class AsTyped:
    """Keeps a value as the text that was typed. Typer's own types would load pydantic,
    which takes 0.07 s.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as it is; of an option with several values () for none."""
        if value is None and (param.multiple or param.nargs == -1):
            return ()
        return value


def as_typed(params: Any) -> Any:
    """The parameters of Typer, changed so that their values stay as they are typed. No
    other private attribute of Typer is used.
    """
    for param in params:
        param._runtime_param = AsTyped()
    return params


class Command(TyperCommand):
    """A command whose values stay as they were typed, and whose help shows what most
    people use.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, Typer's own for the help last."""
        params: list[Any] = as_typed(super().get_params(ctx))
        for param in params:
            # a shell offers all of them
            if ctx.obj == HELP_ALL or ctx.resilient_parsing:
                param.hidden = False
        help_option = params[-1]
        help_option.rich_help_panel = "Output"
        if any(param.hidden for param in params):
            help_option.help = f"Show this; {HELP_ALL} shows every flag."
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; `--json` is short for `--format json`."""
        if HELP_ALL in args:
            ctx.obj, args = HELP_ALL, ["--help"]
        if not ctx.resilient_parsing:
            args = by_place(args, self.params)
        args = ["--format=json" if word == "--json" else word for word in args]
        try:
            return super().parse_args(ctx, args)
        except UsageError as problem:
            # Typer does not set it in each case
            problem.ctx = ctx  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Call its function. The hint of an error names the flags that a pyproject.toml
        sets, since one of them may be the mistake.
        """
        try:
            return super().invoke(ctx)
        except FfnbenchError as problem:
            names = ", ".join(set_by_file(ctx))
            if names:
                problem.hint = "; ".join(
                    filter(None, (problem.hint, f"pyproject.toml sets {names}"))
                )
            raise

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the end of the help with its lines unbroken, so that they can be
        copied.
        """
        formatter.write(f"\n{self.epilog}\n")


class Commands(TyperGroup):
    """All commands, each imported when it is typed; the help imports them all."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Typer suggests these names
        self.commands = dict.fromkeys(FILES)  # type: ignore[assignment]

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters that may stand before a command."""
        params: list[Any] = as_typed(super().get_params(ctx))
        return params

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, those of the core first."""
        return command_names()

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command of that name, None where there is none."""
        name = name.replace("_", "-")
        if name in FILES:
            module = import_module(f"ffnbench.{FILES[name]}")
        else:
            return None
        [info] = [info for info in module.app.registered_commands if info.name == name]
        return get_command_from_info(
            info, pretty_exceptions_short=False, rich_markup_mode=self.rich_markup_mode
        )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the end of the help as that of a command."""
        formatter.write(f"\n{self.epilog}\n")


def command_names() -> list[str]:
    """Every command, those of the core first."""
    return [*FILES]


def options_of(name: str) -> dict[str, Any]:
    """The parameters of a command that are typed by name, by their own names."""
    params = Commands().get_command(None, name).params
    return {param.name: param for param in params if param.param_type_name == "option"}


def settings_here() -> Settings | None:
    """What a pyproject.toml sets in this folder."""
    return found_settings(command_names())


def ending(*examples: str, docs: str) -> str:
    """The end of a help: examples to copy, and the page that says more, as it was
    installed with this version.
    """
    page, mark, heading = docs.partition("#")
    package = Path(__file__).parents[1]
    root = package if (package / "docs").is_dir() else package.parent
    lines = [
        "Examples:",
        *(f"  {line}" for line in examples),
        "",
        f"More: {(root / page).as_uri()}{mark}{heading}",
    ]
    return "\n".join(lines)


def request_from_typed(kind: type[R], ctx: typer.Context, **more: Any) -> R:
    """Make a request of what was typed and of what a file sets, with these further
    values. Raises FfnbenchError for a text that is no value of its flag.
    """
    given = set_by_file(ctx).keys() | {
        name for name in ctx.params if is_typed(ctx, name)
    }
    for field in fields(kind):
        if field.name in given:
            value = ctx.params[field.name]
            more[field.name] = read(
                kind, field.name, [value] if isinstance(value, str) else value
            )
    return kind(**more)


def output_from_typed(ctx: typer.Context) -> Output:
    """How the answer is shown and written, as it was typed or as a file sets it."""
    defaults = defaults_note(set_by_file(ctx))
    return request_from_typed(Output, ctx, defaults=defaults)


def destination_of(
    output: Output, stem: str, *inputs: object, pictures: bool = False, **how: Any
) -> Destination:
    """Where the answer goes: the screen, and files called `stem` where -o is a folder.

    `inputs` are values of flags that may be paths: no output is written over these.
    `pictures` allows the suffixes of pictures. `how` are further arguments of
    Destination.
    """
    from ffnbench.report.destination import Destination

    suffixes = [*SUFFIXES, PAGE_SUFFIX]
    if pictures:
        suffixes += FIGURE_SUFFIXES
    how.setdefault("suffixes", suffixes)
    if output.out:
        from ffnbench.report.files.outputs import inputs_of

        how["inputs"] = inputs_of(*inputs)
    return Destination(output, stem, **how)


def answer_request(
    ctx: typer.Context,
    request: AnyRequest,
    stem: str,
    plan_of: Callable[..., Plan],
    *,
    counts: bool = False,
    machines: Sequence[Hardware] = (),
) -> int:
    """Plan what was asked and count its costs, measure it unless `counts` says that
    only these are wanted, and show the answer; gives the exit code.

    `plan_of` makes the plan of the request. The costs have bounds on `machines`.
    """
    from ffnbench.api.preparing import prepare_plan
    from ffnbench.report.shown_report import report_view
    from ffnbench.run.world import this_machine

    output = output_from_typed(ctx)
    inputs = vars(request).values()
    with destination_of(
        output, stem, *inputs, pictures=True, counts_only=counts
    ) as destination:
        world = this_machine(wait=output.wait)
        prepared = prepare_plan(
            request,
            world,
            plan_of,
            notes=destination.defaults,
            counts=counts,
            as_jobs=bool(output.on),
        )
        report = prepared.cost_report(machines)
        destination.expect(report)
        if output.on:
            from ffnbench.api.cluster import measure_as_jobs

            report = measure_as_jobs(prepared, world, destination, output.on)
        elif not counts:
            from ffnbench.api.measuring import measure_plan

            report = measure_plan(prepared, world, destination.following)
        destination.show(report_view(report))
    return destination.code
