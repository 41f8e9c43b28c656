"""Makes one typed function a command and a function of Python.

Each parameter is annotated with an alias of app/options.py, whose reader makes its
value of what is typed or passed: the body sees what the readers give. The command has
flags more, which say how the answer is shown and written.
"""

from __future__ import annotations

import inspect
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from ffnbench.common.errors import FfnbenchError, WrongArgument
from ffnbench.plan.reading import ReadFlag, spelling, switch, texts_of

P = ParamSpec("P")
R = TypeVar("R")
WIDTH = 80  # columns of a help
BY_NAME = "_by_name"  # behind the name of an argument that is typed so
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


@dataclass(frozen=True, slots=True)
class Flag:
    """A parameter of a command: its reader, and what Typer knows of it."""

    name: str
    read: ReadFlag[Any]
    info: ArgumentInfo | OptionInfo
    default: Any

    @property
    def is_argument(self) -> bool:
        """Whether it is typed by its place."""
        return isinstance(self.info, ArgumentInfo)

    @property
    def is_repeated(self) -> bool:
        """Whether it is typed several times, or is an argument in the plural."""
        return self.default == () or (self.is_argument and self.name.endswith("s"))

    def parameters(self) -> list[inspect.Parameter]:
        """The parameter as Typer sees it: its value is a text, several, or a bool. An
        argument that may be left out may be typed by its name as well.
        """
        kind: Any = str
        default = self.default
        if self.is_repeated:
            kind, default = list[str], None
        elif self.read is switch:
            kind = bool
        elif default is not None and default is not inspect.Parameter.empty:
            default = str(default)
        if default is None:
            kind = kind | None
        parameters = [_parameter(self.name, Annotated[kind, self.info], default)]
        if self.is_argument and self.default is not inspect.Parameter.empty:
            named = typer.Option(spelling(self.name), hidden=True)
            several = Annotated[list[str] | None, named]
            parameters.append(_parameter(self.name + BY_NAME, several, None))
        return parameters


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def values_of(flags: Sequence[Flag], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the readers make of values that were typed or passed, or of the defaults."""
    values = {}
    for flag in flags:
        value = given.get(flag.name, flag.default)
        if value is None and flag.default == ():
            value = ()
        if value is None and flag.default is not None:
            hint = "help() of the function shows its arguments"
            if flag.default is not inspect.Parameter.empty:
                hint = f"leave it out, and it is {flag.default!r}"
            raise WrongArgument(f"{flag.name} can't be None", hint)
        values[flag.name] = None if value is None else flag.read(flag.name, value)
    return values


def command_line(command: str, flags: Sequence[Flag], given: Mapping[str, Any]) -> str:
    """The command that asks the same again, by what was typed or passed."""
    words = ["ffnbench", command]
    for flag in flags:
        value = given.get(flag.name)
        if value is None or str(value) == str(flag.default):
            continue
        if flag.is_argument:
            words.append(shlex.quote(flag.read(flag.name, value)))
        elif flag.read is switch:
            words.append(spelling(flag.name))
        else:
            texts = flag.read(flag.name, value)
            if not flag.is_repeated:
                texts = [",".join(texts_of(flag.name, value))]
            for text in texts:
                words += [spelling(flag.name), shlex.quote(text)]
    return " ".join(words)


class Command(TyperCommand):
    """A command whose values stay as they were typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, Typer's own for the help last."""
        params = as_typed(super().get_params(ctx))
        params[-1].rich_help_panel = "Output"
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; `--json` is short for `--format json`."""
        args = ["--format=json" if word == "--json" else word for word in args]
        try:
            if not ctx.resilient_parsing:
                refuse_twice(self.make_parser(ctx).parse_args([*args])[2])
            return super().parse_args(ctx, args)
        except UsageError as problem:
            # Typer does not set it in each case
            problem.ctx = ctx  # type: ignore[attr-defined]
            raise

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the end of the help with its lines unbroken, so that they can be
        copied.
        """
        formatter.write(f"\n{self.epilog}\n")


def refuse_twice(typed: Sequence[Any]) -> None:
    """Raise FfnbenchError for an option of one value that was `typed` twice."""
    for param in typed:
        if typed.count(param) > 1 and not (param.multiple or param.is_flag):
            raise FfnbenchError(
                f"{param.opts[0]} is given twice",
                "give it once; a list has commas: 64,128",
            )


class Group(TyperGroup):
    """All commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters that may stand before a command."""
        return as_typed(super().get_params(ctx))

    format_epilog = Command.format_epilog


def is_typed(context: Any, name: str) -> bool:
    """Whether a parameter was typed."""
    return str(context.get_parameter_source(name).name) == "COMMANDLINE"


class AsTyped:
    """Keeps a value as the text that was typed. Typer's own types would load pydantic,
    which takes 0.07 s.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as it is."""
        return value


def as_typed(params: list[Any]) -> list[Any]:
    """The parameters of Typer, changed so that their values stay as they are typed. No
    other private attribute of Typer is used.
    """
    for param in params:
        param._runtime_param = AsTyped()
    return params


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


def has_wide_terminal() -> bool:
    """Whether the help has room for panels: in narrow ones names would be cut."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return is_terminal and shutil.get_terminal_size().columns >= WIDTH


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich" if has_wide_terminal() else None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "max_content_width": WIDTH,
    },
    epilog=ending(
        "ffnbench compare relu gelu swiglu --d-model 768",
        "ffnbench cost --preset llama3-8b",
        "ffnbench list variants",
        docs="README.md",
    ),
)


def command(
    *,
    shows: Mapping[str, Any],
    examples: Sequence[str],
    docs: str,
    **how: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a command that shows its answer. Python has the function itself,
    see app/python.py.

    `shows` are the further flags of the command: arguments of report/destination.py:
    Destination, each with its alias and its default. `how` are arguments of
    app/answering.py: show_answer.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        flags = flags_of(function)
        of_output = [_flag(name, *alias) for name, alias in shows.items()]
        name = function.__name__.rstrip("_").replace("_", "-")

        def from_shell(ctx: typer.Context, **typed: Any) -> int:
            from ffnbench.app.answering import show_answer

            given = _given(ctx, typed)
            return show_answer(
                lambda: function(**values_of(flags, given)),  # type: ignore[call-arg]
                values_of(of_output, given),
                given,
                command=name,
                line=command_line(name, flags, given),
                **how,
            )

        text = inspect.getdoc(function) or ""
        of_all = (*flags, *of_output)
        parameters = [each for flag in of_all for each in flag.parameters()]
        of_context = inspect.Parameter(
            "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )
        from_shell.__signature__ = inspect.Signature([of_context, *parameters])  # type: ignore[attr-defined]
        register = app.command(
            name,
            cls=Command,
            help=text.partition("\n>>>")[0],
            epilog=ending(*examples, docs=docs),
        )
        register(from_shell)
        return function

    return decorate


def flags_of(function: Callable[..., Any]) -> list[Flag]:
    """The flags that the parameters of a function are."""
    parameters = inspect.signature(function).parameters
    return [
        _flag(name, parameter.annotation, parameter.default)
        for name, parameter in parameters.items()
    ]


def _flag(name: str, annotation: Any, default: Any) -> Flag:
    read, info = annotation.__metadata__
    return Flag(name, read, info, default)


def _given(ctx: Any, typed: dict[str, Any]) -> dict[str, Any]:
    """What was typed. What is typed by its name stands behind what is typed by its
    place.
    """
    values: dict[str, Any] = {}
    for name in typed:
        if not is_typed(ctx, name):
            continue
        value, argument = typed[name], name.removesuffix(BY_NAME)
        if argument != name:
            by_place = values.get(argument, [])
            every = [*([by_place] if isinstance(by_place, str) else by_place), *value]
            value = every if len(every) > 1 else every[0]
        values[argument] = value
    return values
