"""Commands as functions of bundles: each field of a bundle that is a flag becomes an option, or an argument.

A command is written as `def compare(request: CompareRequest, output: MeasuredOutput) -> int`; it gives the exit code.
Typer takes the words apart and knows nothing of their kinds: what was typed is read as planning/fields.py has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand

from ffnbench.cli.completing import completer
from ffnbench.cli.defaults import Settings, found_settings, noted
from ffnbench.cli.help import meaning, write_end, write_options
from ffnbench.cli.words import as_meant, spellings
from ffnbench.errors import FfnbenchError
from ffnbench.features import commands, measurers, suffixes
from ffnbench.planning.fields import Typed, flag_of, kind_of, read, takes_list, typed_order
from ffnbench.report.flags import MeasuredOutput, Shown, Written
from ffnbench.request import ARGUMENTS, spelling

if TYPE_CHECKING:
    from ffnbench.report.output import Destination

FILES = {  # of each command, in the order of the help; a file is loaded when a command of it is typed
    "compare": "compare.command", "cost": "compare.command", "report": "cli.saved", "block": "block.command",
    "check": "gate.command", "ab": "gate.command",
    "plot-activations": "activations.command", "activations": "activations.command",
    "list": "cli.tools", "env": "cli.tools",
}  # fmt: skip
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
ALL = "help_all"
PLACED = "_placed"  # behind the name of a field, what was typed by its place
CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda name: with_dashes(name),
    "max_content_width": 80,
}


@dataclass(frozen=True, kw_only=True)
class Described:
    """A command before it is built: the function of bundles, and what ends its help: examples, and a page."""

    name: str
    function: Callable[..., int]
    examples: tuple[str, ...]
    docs: str

    @property
    def help(self) -> str:
        """What it does."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def bundles(self) -> dict[str, Any]:
        """Its bundles, by the parameter that takes one."""
        return {name: kind for name, kind in get_type_hints(self.function).items() if name != "return"}

    @cached_property
    def measurers(self) -> tuple[type[Any], ...]:
        """Bundles of features that measure in place of the core, where this command measures groups."""
        measures = any(issubclass(kind, MeasuredOutput) for kind in self.bundles.values())
        return measurers() if measures else ()

    @cached_property
    def own(self) -> dict[str, Field[Any]]:
        """What can be typed, by name, without what features add."""
        return _flags_of(self.bundles.values())

    @cached_property
    def added(self) -> dict[str, Field[Any]]:
        """What features add to it, by name: no file sets these, and a short help leaves them out."""
        return _flags_of(self.measurers)

    @cached_property
    def fields(self) -> dict[str, Field[Any]]:
        """What can be typed, by name."""
        return self.own | self.added

    @property
    def named(self) -> dict[str, Field[Any]]:
        """What can be typed by its name."""
        return {name: field for name, field in self.fields.items() if flag_of(field).named}

    @property
    def settable(self) -> dict[str, Field[Any]]:
        """What a pyproject.toml can set."""
        return {name: field for name, field in self.own.items() if flag_of(field).named}


def _flags_of(bundles: Iterable[type[Any]]) -> dict[str, Field[Any]]:
    return {one.name: one for of in bundles for one in fields(of) if "flag" in one.metadata}


def _filled(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A bundle with those of the values that are its own."""
    return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})


_REGISTERED: dict[str, Described] = {}


def command(name: str, *examples: str, docs: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a function of bundles as the command of that name: with what can be typed, and where more is said."""

    def register(function: Callable[..., int]) -> Callable[..., int]:
        _REGISTERED[name] = Described(name=name, function=function, examples=examples, docs=docs)
        return function

    return register


def command_names() -> list[str]:
    """Every command, those of the core first."""
    return [*FILES, *commands()]


def is_command(name: str) -> bool:
    """Whether a command has that name. Features are asked only where the core has none."""
    return name in FILES or name in commands()


def described(name: str) -> Described:
    """What a command is."""
    if name in FILES:
        import_module(f"ffnbench.{FILES[name]}")
    else:
        commands()[name].file("command")
    return _REGISTERED[name]


def settings_here() -> Settings | None:
    """What a pyproject.toml sets in this folder."""
    return found_settings(lambda: {name: described(name).settable for name in command_names()})


def with_dashes(name: str) -> str:
    """`--d_model` is `--d-model`."""
    return name.replace("_", "-")


class Command(TyperCommand):
    """A command of bundles, as Typer has it."""

    described: Described

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        named = [(one.metavar, one.required) for one in self.params if isinstance(one, TyperArgument)]
        return ["[OPTIONS]", *(str(name) if required else f"[{name}]" for name, required in named)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter, every=bool(ctx.obj))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_end(formatter, self.described.examples, self.described.docs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words apart, and leave out what Typer would do with them: its pydantic takes a third of a start."""
        if ctx.resilient_parsing:  # a shell asks how a line could go on
            return super().parse_args(ctx, args)
        try:
            found, rest, order = self.make_parser(ctx).parse_args(args=as_meant(args, self.described.named))
        except UsageError as problem:
            problem.ctx = ctx  # type: ignore[attr-defined]  # it is not always told
            raise
        if found.get("help") or found.get(ALL):
            ctx.obj = bool(found.get(ALL))
            print(ctx.get_help())
            raise typer.Exit
        if rest:
            ctx.fail(f"Got unexpected extra argument ({' '.join(rest)})")
        for one in self.params:
            if one.required and found.get(one.name) in (None, ()):
                ctx.fail(f"Missing argument '{one.metavar}'")
        if not args[:1] or not args[0].startswith("-"):  # what is typed by its place stands last in what was found
            order = sorted(order, key=lambda one: PLACED not in one.name)
        names = [one.name.removesuffix(PLACED) for one in order]
        in_order = dict.fromkeys(name for name in (*names, *self.described.fields) if name in self.described.fields)
        ctx.params = {name: typed for name in in_order if (typed := _typed(found, name)) is not None}
        return []

    def invoke(self, ctx: Any) -> int:
        return _run(self.described, ctx.params)


def _typed(found: Mapping[str, Any], name: str) -> Typed | None:
    """What was typed of a field, by its name and then by its place; None for nothing."""
    texts: list[str] = []
    for value in (found.get(name), found.get(name + PLACED)):
        if isinstance(value, bool):
            return value
        texts += [value] if isinstance(value, str) else value or ()
    return texts or None


def _run(one: Described, typed: Mapping[str, Typed]) -> int:
    """Fill the bundles of a command with what was typed and what a file sets, and call it."""
    settings = settings_here()
    held = settings.values_for(one.name, one.settable, typed) if settings else {}
    try:
        values = {name: read(one.fields[name], value) for name, value in {**held, **typed}.items()}
        if values.get("json"):
            if values.setdefault("format", "json") not in ("table", "json"):
                told = f"--json and --format {values['format']} both say what is shown"
                raise FfnbenchError(told, "give one of the two")
            values["format"] = "json"
        values["said"], values["typed"] = noted(held), typed_order(values)
        instead = [_filled(kind, values).measures() for kind in one.measurers]
        values["measure"] = next(filter(None, instead), None)
        return one.function(**{name: _filled(kind, values) for name, kind in one.bundles.items()})
    except FfnbenchError as problem:
        if held:
            problem.hint = "; ".join(filter(None, (problem.hint, f"pyproject.toml sets {', '.join(held)}")))
        raise


def built(one: Described) -> Command:
    """A command as Typer has it: of a function whose signature has all flags, each a text."""

    def stand_in() -> None:
        pass

    parameters = [found for field in one.fields.values() for found in _parameters(field)]
    every = typer.Option("--help-all", help="Show this, and every flag that there is.")
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters.append(inspect.Parameter(ALL, by_name, annotation=Annotated[bool, every], default=False))
    stand_in.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    stand_in.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(one.name, cls=Command, help=one.help, context_settings=CONTEXT)(stand_in)
    made: Any = typer.main.get_command(alone)
    made.described = one
    return made  # type: ignore[no-any-return]


def _parameters(field: Field[Any]) -> list[inspect.Parameter]:
    how, completes = flag_of(field), completer(field)
    kind: Any = bool if kind_of(field) == "bool" else list[str] if takes_list(field) else str
    found = []
    if how.place:
        required = not how.named and field.default in ("", ())
        told = f"As {spelling(field.name)}, and behind it." if how.named else how.help
        found.append((field.name + PLACED, kind, required, typer.Argument(
            metavar=how.place, help=told, autocompletion=completes, rich_help_panel=ARGUMENTS,
        )))  # fmt: skip
    if how.named:
        first, *others = spellings(field)
        found.append((field.name, kind, False, typer.Option(
            first + (f"/{how.off}" if how.off else ""), *others, help=meaning(field), rich_help_panel=how.panel,
            metavar=how.metavar or None, autocompletion=completes,
        )))  # fmt: skip
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind if required else kind | None, option],
            default=inspect.Parameter.empty if required else None,
        )
        for name, kind, required, option in found
    ]  # fmt: skip


def destination_of(
    output: Shown | Written, stem: str, *inputs: object, pictures: bool = False, features: bool = False, **how: Any
) -> Destination:
    """The one way in which a command ends; `inputs` are values that may be paths: no output is written over these.

    Features write files of it where `features` or `pictures` says so.
    """
    from ffnbench.report.files.outputs import inputs_of
    from ffnbench.report.formats import PICTURES, SUFFIXES
    from ffnbench.report.output import Destination

    written = [*SUFFIXES]
    if features or pictures:
        written += suffixes()
    if pictures:
        written += PICTURES
    how.setdefault("suffixes", written)
    return Destination(output, stem, inputs=inputs_of(*inputs), **how)
