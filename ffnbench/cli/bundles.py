"""Bundles of flags as the parameters of a command: each field of a request that is a flag becomes an option.

A command is written as a function of bundles, `def compare(request: CompareRequest, output: Output)`. Typer sees a
function of all their flags, and the command is called with the bundles.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, wraps
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand

from ffnbench.cli.completing import completer
from ffnbench.cli.help import write_examples, write_options
from ffnbench.errors import FfnbenchError
from ffnbench.report.flags import Shown, Written
from ffnbench.request import EXAMPLES, TAKE_LISTS, Flag, several, spelling
from ffnbench.units import read_count, read_number, read_percent, read_seconds

if TYPE_CHECKING:
    from ffnbench.report.output import OutputSink

TYPED, OF_FILE = "COMMANDLINE", "DEFAULT_MAP"  # as Typer calls them
LIST = "LIST"  # stands for the value of a flag that is a comma separated list, and that adds up if it is repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A command before it is built: the function of bundles, and the end of its help."""

    name: str
    function: Callable[..., None]
    epilog: str

    @property
    def help(self) -> str:
        """What it does."""
        return inspect.getdoc(self.function) or ""

    @property
    def flags(self) -> dict[str, Flag]:
        """Its flags, by field."""
        hints = get_type_hints(self.function, include_extras=True)
        return {
            field.name: field.metadata["flag"]
            for kind in hints.values()
            if is_dataclass(kind)
            for field in fields(kind)
            if "flag" in field.metadata
        }


_REGISTERED: dict[str, Described] = {}


def command(name: str, *, epilog: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of bundles as the command of that name."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _REGISTERED[name] = Described(name=name, function=function, epilog=epilog)
        return function

    return register


def registered(name: str) -> Described:
    """The command of a file that is loaded."""
    return _REGISTERED[name]


class Command(TyperCommand):
    """A command with panels in its help, and with defaults of a pyproject.toml in the place of its own."""

    commands: Callable[[], list[Described]]  # all there are: a file's keys are those of their flags

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        names = [(one, str(one.metavar or one.name)) for one in self.params if isinstance(one, TyperArgument)]
        return ["[OPTIONS]", *(name if one.required else f"[{name}]" for one, name in names)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_examples(self, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from ffnbench.cli.defaults import explained, found_settings, values_of

        wants_help = {"-h", "--help"} & {*args}
        found = None if wants_help else found_settings(self.commands)
        if found is None:
            return super().parse_args(ctx, args)
        ctx.default_map = values_of(found, self, args)
        with explained(ctx.default_map):
            return super().parse_args(ctx, args)


def built(one: Described, commands: Callable[[], list[Described]]) -> Command:
    """A command as Typer has it."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(one.name, cls=Command, epilog=one.epilog)(_expanded(one.function))
    made: Any = typer.main.get_command(alone)
    made.commands = commands
    return made  # type: ignore[no-any-return]


def _expanded(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the fields of its bundles as parameters of their own."""
    hints = get_type_hints(function, include_extras=True)
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters: list[inspect.Parameter] = [context]
    bundles: dict[str, Any] = {}
    of_context = [name for name, kind in hints.items() if kind is typer.Context]  # handed on, as it is
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            bundles[parameter.name] = kind
            parameters += _options(kind)
        elif kind is not typer.Context:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
    parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)

    @wraps(function)
    def call(context: typer.Context, **given: Any) -> None:
        from ffnbench.cli.defaults import explained, noted

        _refuse_empty(context, given)
        held = {
            name: value for name, value in (context.default_map or {}).items() if source_of(context, name) == OF_FILE
        }
        with explained(held):
            told = {name: _filled(kind, given) for name, kind in bundles.items()}
            for name, of in told.items():
                if isinstance(of, Shown):
                    told[name] = replace(of, said=noted(held))
            function(**told, **given, **dict.fromkeys(of_context, context))

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def source_of(context: typer.Context, name: str) -> str:
    """Where the value of a flag or an argument is from: TYPED, OF_FILE, or elsewhere."""
    source = context.get_parameter_source(name)
    return source.name if source is not None else ""


def _refuse_empty(context: typer.Context, given: Mapping[str, Any]) -> None:
    """A shell makes an empty value of a variable that is not set. As a path it would be the current folder, and nobody
    has asked for that.
    """
    for one in context.command.params:
        value = given.get(str(one.name))
        texts = value if isinstance(value, list) else [value]
        empty = any(isinstance(text, str) and not text.strip() for text in texts)
        if empty and source_of(context, str(one.name)) in (TYPED, OF_FILE):
            name = one.opts[0] if one.param_type_name == "option" else one.metavar or one.name
            raise FfnbenchError(f"{name} has an empty value", "give it one, or leave it out; is a variable not set?")


# Fields as options


@cache
def _types_of(bundle: type) -> dict[str, Any]:
    """The types of a bundle's fields, by name. Bundles share their fields, so each text is read once: reading them all
    for every command took a third of the start.
    """
    return {
        name: _type_of(owner.__module__, text)
        for owner in reversed(bundle.__mro__)
        for name, text in vars(owner).get("__annotations__", {}).items()
    }


@cache
def _type_of(module: str, text: str) -> Any:
    return eval(text, vars(sys.modules[module]))


def _options(bundle: Any) -> Iterable[inspect.Parameter]:
    hints = _types_of(bundle)
    for field in fields(bundle):
        how = field.metadata.get("flag")
        if how is not None:
            kind, read = _kind(hints[field.name], how, spelling(field.name))
            default = list(field.default) or None if isinstance(field.default, tuple) else field.default
            if how.metavar == LIST and default is not None:
                default = [str(default)]
            option: Any = Annotated[kind, _option(field.name, how, read)]
            yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)


def _option(name: str, how: Flag, read: Callable[[str], Any] | None) -> Any:
    spelled = [spelling(name) + (f"/{how.off}" if how.off else ""), *([how.short] if how.short else [])]
    return typer.Option(
        *spelled, *how.also, help=how.help, rich_help_panel=how.panel, metavar=how.metavar or None, parser=read,
        autocompletion=completer(name),
    )  # fmt: skip


def _kind(hint: Any, how: Flag, name: str) -> tuple[Any, Callable[[str], Any] | None]:
    """The type for Typer, and what reads the text: whole numbers, with `2k`; times; percentages; plain numbers.

    A tuple of texts is a flag that may stand several times, and so is a comma separated list.
    """
    if get_origin(hint) is tuple or how.metavar == LIST:
        return list[str] | None, None
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]
    by_unit = {"TIME": read_seconds, "PCT": read_percent}
    read = {int: _count, float: by_unit.get(how.metavar, read_number)}.get(members[0])
    return hint, _told(name, read) if read else None


def _count(text: str) -> int:
    if "," in text:
        raise FfnbenchError(f"{text!r} is a list, and this takes one whole number", TAKE_LISTS)
    return read_count(text)


def _counts(name: str, text: str) -> int | tuple[int, ...]:
    """One whole number, or several with commas between, of the flag of that field."""

    def read(part: str) -> int:
        try:
            return read_count(part)
        except FfnbenchError as problem:
            of = f", in {text!r}" if part != text else ""
            more = f"; for example {spelling(name)} {EXAMPLES[name]}"
            hint = "a list has commas: 128,512" if " " in part else problem.hint + more
            raise FfnbenchError(f"{spelling(name)}: {problem.message}{of}", hint) from None

    found = several(name, text, read)
    return found[0] if len(found) == 1 else found


def _told(name: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """The reader, which says of which flag it complains."""

    def told(text: str) -> Any:
        try:
            return read(str(text))
        except FfnbenchError as problem:
            raise FfnbenchError(f"{name}: {problem.message}", problem.hint) from None

    return told


def _filled(bundle: Any, given: dict[str, Any]) -> Any:
    """The bundle with its flags, taken out of what was given. A flag that may stand several times becomes a tuple; a
    comma separated list that does is one list.
    """
    values, hints = {}, _types_of(bundle)
    for field in fields(bundle):
        if (how := field.metadata.get("flag")) is None:
            continue
        value = given.pop(field.name)
        if isinstance(field.default, tuple):
            value = tuple(value or ())
        elif how.metavar == LIST and value is not None:
            numbers = any(get_origin(one) is tuple for one in get_args(hints[field.name]))
            value = _counts(field.name, ",".join(value)) if numbers else ",".join(value)
        values[field.name] = value
    if values.get("json"):
        if values["format"] not in ("table", "json"):
            raise FfnbenchError(f"--json and --format {values['format']} both say what is shown", "give one of the two")
        values["format"] = "json"
    return bundle(**values)


def sink_of(output: Shown | Written, stem: str, *inputs: object, pictures: bool = False, **how: Any) -> OutputSink:
    """The one way in which a command ends; `inputs` are values that may be paths: no output is written over these."""
    from ffnbench.report.files.outputs import inputs_of
    from ffnbench.report.formats import PICTURES, SUFFIXES
    from ffnbench.report.output import OutputSink

    how = {"suffixes": (*SUFFIXES, *(PICTURES if pictures else ())), **how}
    return OutputSink(output, stem, inputs=inputs_of(*inputs), **how)
