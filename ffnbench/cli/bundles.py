"""Bundles of flags as the parameters of a command: each field of a request that is a flag becomes an option.

A command is written as a function of bundles, `def compare(request: CompareRequest, output: Output)`. Typer sees a
function of all their flags, and the command is called with the bundles. Before that defaults of a pyproject.toml are
filled in (defaults.py), and a typed flag that would mislead is refused (idle.py).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, wraps
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from ffnbench.cli.app import app
from ffnbench.cli.completing import COMPLETERS
from ffnbench.cli.help import Command
from ffnbench.errors import FfnbenchError
from ffnbench.planning.lists import EXAMPLES, TAKE_LISTS, several
from ffnbench.report.output import Shown
from ffnbench.request import (
    ATTENTION,
    CURVES,
    EFFORT,
    LIMITS,
    MEASURING,
    MODEL,
    OUTPUT,
    SIDES,
    WIDTHS,
    WORKLOAD,
    Flag,
    spelling,
)
from ffnbench.units import read_count, read_number, read_percent, read_seconds

if TYPE_CHECKING:
    from ffnbench.cli.defaults import Settings
    from ffnbench.cli.idle import Asked

LIST = "LIST"  # stands for the value of a flag that is a comma separated list, and that adds up if it is repeated
PANELS = (  # in the order of the help
    SIDES, MODEL, WIDTHS, ATTENTION, CURVES, WORKLOAD, LIMITS, MEASURING, EFFORT, OUTPUT,
)  # fmt: skip


def command(
    name: str | None = None, *, epilog: str, words: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of bundles; `words` are filled into the help of flags, such as {formats}."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, cls=Command, epilog=epilog)(expanded(function, words or {}))
        return function

    return register


def expanded(function: Callable[..., None], words: Mapping[str, str]) -> Callable[..., None]:
    """The function with the fields of its bundles as parameters of their own."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    bundles: dict[str, type] = {}
    of_context = [name for name, kind in hints.items() if kind is typer.Context]  # handed on, as it is
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if kind is typer.Context:
            continue
        if not is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(kind, type)
        bundles[parameter.name] = kind
        parameters += _options(kind, words)
    options = [p for p in parameters if p.default is not inspect.Parameter.empty]
    parameters = [p for p in parameters if p.default is inspect.Parameter.empty] + sorted(options, key=_place)

    parameters.insert(0, inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    kinds = {name: kind for bundle in bundles.values() for name, kind in _kinds(bundle).items()}
    FLAGS[_name_of(function)] = kinds

    @wraps(function)
    def call(context: typer.Context, **given: Any) -> None:
        _refuse_empty(context, given)
        arguments = {name: value for name, value in given.items() if name not in kinds}
        held = _defaults(context, kinds, given)

        def filled() -> dict[str, Any]:
            from ffnbench.cli.idle import of_file

            values = {**given, **{name: value for name, (value, _) in held.items()}}
            with of_file([text for _, text in held.values()]):
                return {name: _filled(kind, values) for name, kind in bundles.items()}

        asked = _asked(context, filled().values(), arguments, held)
        for name in asked.idle_defaults():
            del held[name]
        asked = _asked(context, filled().values(), arguments, held)
        asked.refuse()
        told = {
            name: replace(of, known=asked.known, said=asked.said) if isinstance(of, Shown) else of
            for name, of in filled().items()
        }
        with asked.explained():
            function(**told, **arguments, **dict.fromkeys(of_context, context))

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a value is read: its type for Typer, and the parser of its text."""

    type: Any
    parser: Callable[[str], Any] | None = None


Default = tuple[Any, str]  # its value, and how it is told
FLAGS: dict[str, Mapping[str, _Kind]] = {}  # by command, the fields that are flags


def settings() -> Settings | None:
    """What a pyproject.toml sets here."""
    from ffnbench.cli.defaults import found_settings

    return found_settings(FLAGS)


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


def _name_of(function: Callable[..., None]) -> str:
    return function.__name__.rstrip("_").replace("_", "-")


def _kinds(bundle: type) -> dict[str, _Kind]:
    """How the value of each flag of a bundle is read."""
    hints = _types_of(bundle)
    flags = {field.name: field.metadata["flag"] for field in fields(bundle) if "flag" in field.metadata}
    return {name: _kind(hints[name], how, spelling(name)) for name, how in flags.items()}


def _defaults(context: typer.Context, kinds: Mapping[str, _Kind], given: Mapping[str, Any]) -> dict[str, Default]:
    """What a pyproject.toml sets and nothing typed contradicts: by field the value, and how it is told."""
    from ffnbench.cli.defaults import shown, that_hold

    found = settings()
    if found is None:
        return {}
    typed = {name for name in kinds if _is_typed(context, name)}
    read = {
        name: _read(found.path, name, kinds[name], v) for name, v in found.of(str(context.info_name), kinds).items()
    }
    held = that_hold(read, typed, given)
    texts = found.of(str(context.info_name), kinds)
    return {name: (value, f"{name.rstrip('_')} {shown(texts[name])}") for name, value in held.items()}


def _read(path: Path, name: str, kind: _Kind, value: Any) -> Any:
    """A value of a file as it would be if it had been typed."""
    from ffnbench.cli.defaults import shown

    is_switch = bool in (kind.type, *get_args(kind.type))
    if is_switch != isinstance(value, bool) or _is_empty(value):
        raise FfnbenchError(
            f"{name} of {str(path)!r} is {shown(value)!r}", f"{name} = true, or false" if is_switch else ""
        )
    if is_switch:
        return value
    if list[str] in (kind.type, *get_args(kind.type)):
        return [shown(one) for one in (value if isinstance(value, list) else [value])]
    try:
        return kind.parser(shown(value)) if kind.parser else shown(value)
    except FfnbenchError as problem:
        raise FfnbenchError(f"{problem.message}, in {str(path)!r}", problem.hint) from None


def _refuse_empty(context: typer.Context, given: Mapping[str, Any]) -> None:
    """A shell makes an empty value of a variable that is not set. As a path it would be the current folder, and nobody
    has asked for that.
    """
    for one in context.command.params:
        if _is_empty(given.get(str(one.name))) and _is_typed(context, str(one.name)):
            name = one.opts[0] if one.param_type_name == "option" else one.metavar or one.name
            raise FfnbenchError(f"{name} has an empty value", "give it one, or leave it out; is a variable not set?")


def _is_empty(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and not text.strip() for text in texts)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _asked(
    context: typer.Context, bundles: Iterable[Any], arguments: Mapping[str, Any], held: Mapping[str, Default]
) -> Asked:
    """All values of a command, and which flags were typed, be it with the value of their default."""
    from ffnbench.cli.idle import Asked

    values: dict[str, Any] = {}
    typed: dict[str, str] = {}
    for bundle in bundles:
        for field in fields(bundle):
            how, value = field.metadata.get("flag"), getattr(bundle, field.name)
            values[field.name] = value
            if how and _is_typed(context, field.name):
                typed[field.name] = how.off if how.off and value is False else spelling(field.name)
    return Asked(
        command=str(context.info_name),
        values=values | dict(arguments),
        typed=typed,
        set_={name: text for name, (_, text) in held.items()},
    )


def _options(bundle: type, words: Mapping[str, str]) -> list[inspect.Parameter]:
    hints = _types_of(bundle)
    found = []
    for field in fields(bundle):
        how = field.metadata.get("flag")
        if how is not None:
            kind = _kind(hints[field.name], how, spelling(field.name))
            option: Any = Annotated[kind.type, _option(field.name, how, kind, words)]  # type: ignore[name-defined]
            default = list(field.default) or None if isinstance(field.default, tuple) else field.default
            if how.metavar == LIST and default is not None:
                default = [str(default)]
            found.append(
                inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
            )
    return found


def _option(name: str, how: Flag, kind: _Kind, words: Mapping[str, str]) -> Any:
    spelled = [spelling(name)]
    if how.off:
        spelled[0] += f"/{how.off}"
    if how.short:
        spelled.append(how.short)
    help_ = how.help
    for word, text in words.items():
        help_ = help_.replace("{" + word + "}", text)
    return typer.Option(
        *spelled,
        *how.also,
        help=help_,
        rich_help_panel=how.panel,
        metavar=how.metavar or None,
        parser=kind.parser,
        autocompletion=COMPLETERS.get(name),
    )


def _kind(hint: Any, how: Flag, name: str) -> _Kind:
    """How a value is read: whole numbers, with `2k`; times; percentages; plain numbers.

    A tuple of texts is a flag that may stand several times, and so is a comma separated list.
    """
    if get_origin(hint) is tuple or how.metavar == LIST:
        return _Kind(list[str] | None)
    inner = (
        [one for one in get_args(hint) if one is not type(None)] if get_origin(hint) in (Union, UnionType) else [hint]
    )
    by_unit = {"TIME": read_seconds, "PCT": read_percent}
    read = {int: _count, float: by_unit.get(how.metavar, read_number)}.get(inner[0])
    return _Kind(hint, _told(name, read) if read else None)


def _count(text: int | str) -> int:
    if isinstance(text, str) and "," in text:
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
            return read(text)
        except FfnbenchError as problem:
            raise FfnbenchError(f"{name}: {problem.message}", problem.hint) from None

    return told


def _place(parameter: inspect.Parameter) -> int:
    """Where a flag stands in the help: panel by panel."""
    option = next(one for one in get_args(parameter.annotation)[1:] if hasattr(one, "rich_help_panel"))
    return PANELS.index(option.rich_help_panel) if option.rich_help_panel in PANELS else len(PANELS)


def _filled(bundle: type, given: dict[str, Any]) -> Any:
    """The bundle with its flags, taken out of what was given. A flag that may stand several times becomes a tuple; a
    comma separated list that does is one list.
    """
    values = {field.name: given.pop(field.name) for field in fields(bundle) if "flag" in field.metadata}
    hints = _types_of(bundle)
    for field in fields(bundle):
        if (how := field.metadata.get("flag")) and how.metavar == LIST and values[field.name] is not None:
            text = ",".join(values[field.name])
            numbers = any(get_origin(one) is tuple for one in get_args(hints[field.name]))
            values[field.name] = _counts(field.name, text) if numbers else text
    if values.get("json"):
        if values["format"] not in ("table", "json"):
            raise FfnbenchError(f"--json and --format {values['format']} both say what is shown", "give one of the two")
        values["format"] = "json"
    repeatable = {field.name for field in fields(bundle) if isinstance(field.default, tuple)}
    return bundle(**{name: tuple(value or ()) if name in repeatable else value for name, value in values.items()})
