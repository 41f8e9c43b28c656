"""The config keys that the classes of a type's layers read, found from transformers' source and by watching a build.

`python tests/hf_keys.py TYPE...` prints them, one JSON line a type, or why there was nothing to look at; `all` is every
type that the table reads, `new` those that golden/keys.json lacks; `--write` puts them there. `--list` prints those
keys that families.toml neither reads nor assumes nor declares.

The classes are those of a built model (hf_vary's small one): what owns a list of numbered layers, each layer, and
what stands in one and has parameters, but for attention and norms, which have no FFN in them. Each is looked at
twice. By its source (its bases' too): `config.X`, `getattr(config, "X")`, and what functions read that a config is
handed to. And by watching: which attribute a config was asked for while the class's `__init__` ran. A name that the
config's class computes, in a property or after it was read, stands for the names that it is computed from, too. What
only a nested config has is left to the type of that one.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hf_vary import GOLDEN, kind_of, small

from ffnbench.models.defaults import defaults_of
from ffnbench.models.families import Layout, families, keys_of
from ffnbench.models.transformers import build_empty

NUMBERED = re.compile(r"(^|\.)\d+$")
NO_FFN = re.compile(r"(Attention|Attn|RMSNorm|LayerNorm|RotaryEmbedding)\d*$")
PLUMBING = ("modeling_utils.py", "configuration_utils.py", "auto_factory.py")  # of every model alike
CONFIG = re.compile(r"(^|_)config$")


def keys(model_type: str) -> list[str]:
    """Every key that is found for a type, sorted."""
    kind = kind_of(model_type)
    config = kind.from_dict(small(model_type)[0])
    with watched() as asked:
        model = build_empty(config)
    found: set[str] = set()
    of_layers, owners = classes(model)
    of_layers = reached(of_layers)
    for each in of_layers | owners:
        found |= asked.get(each, set())
        found |= {name for base in bases(each) for name in read(base, only_init=each in owners - of_layers)}
    parts = [getattr(config, key, None) for key in kind.sub_configs]
    found = {name for name in found if hasattr(config, name) or not any(hasattr(part, name) for part in parts)}
    named = {kind.attribute_map.get(name, name) for name in found}
    named |= {kind.attribute_map.get(name, name) for key in named for name in made_of(kind, key)}
    return sorted(name for name in named if is_data(kind, config, name))


def classes(model: Any) -> tuple[set[type], set[type]]:
    """Those of layers and of what stands in them; those that own numbered layers."""
    of_layers, owners = set(), set()
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if NUMBERED.search(path):
            of_layers.add(type(module))
            owners |= {type(modules[up]) for up in ups(path)}
        elif re.search(r"(^|\.)\d+\.", path) and next(module.parameters(), None) is not None:
            inside = {type(modules[up]).__name__ for up in (path, *ups(path))}
            of_layers |= set() if any(map(NO_FFN.search, inside)) else {type(module)}
    ours = [{each for each in some if ".models." in each.__module__} for some in (of_layers, owners)]
    return ours[0], ours[1]


def reached(kinds: set[type]) -> set[type]:
    """And the classes that their source names: what they would make by another config."""
    from torch import nn

    found, left = set(kinds), list(kinds)
    while left:
        for base in bases(left.pop()):
            scope = vars(sys.modules[base.__module__])
            for node in ast.walk(tree(base)):
                named = scope.get(node.id) if isinstance(node, ast.Name) else None
                for each in named.values() if isinstance(named, dict) else [named]:
                    module = isinstance(each, type) and issubclass(each, nn.Module) and ".models." in each.__module__
                    if module and each not in found and not re.search(NO_FFN.pattern + "|Model$", each.__name__):
                        found.add(each)
                        left.append(each)
    return found


def ups(path: str) -> Iterator[str]:
    """The paths above one, the model's own last."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def bases(kind: type) -> list[type]:
    """A class and its bases, as far as they stand in the file of a model."""
    return [each for each in kind.__mro__ if ".models." in each.__module__]


class watched:
    """Which attributes a config is asked for while a module is made, by the module's class."""

    def __enter__(self) -> dict[type, set[str]]:
        from torch import nn
        from transformers import PreTrainedConfig

        self.kind, self.original, asked = PreTrainedConfig, PreTrainedConfig.__getattribute__, {}

        def look(config: Any, key: str) -> Any:
            frame = sys._getframe(1)
            for _ in range(12):
                if frame is None or frame.f_code.co_filename.endswith(PLUMBING):
                    break
                owner = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
                if isinstance(owner, nn.Module):
                    if "/models/" in frame.f_code.co_filename:
                        asked.setdefault(type(owner), set()).add(key)
                    break
                frame = frame.f_back
            return self.original(config, key)

        self.kind.__getattribute__ = look  # type: ignore[method-assign]
        return asked

    def __exit__(self, *_: object) -> None:
        self.kind.__getattribute__ = self.original  # type: ignore[method-assign]


@cache
def parsed(file: str) -> ast.AST:
    """A file's source."""
    return ast.parse(Path(file).read_text(encoding="utf-8"))


@cache
def tree(thing: Any) -> ast.Module:
    """The definition of a class or a function that stands in a file of a model; nothing where there is none."""
    found: Any = parsed(str(sys.modules[thing.__module__].__file__))
    for name in thing.__qualname__.split("."):
        found = next((n for n in found.body if getattr(n, "name", None) == name), ast.Module([], []))
    return ast.Module([found], [])


def read(thing: Any, only_init: bool = False, named: str | None = None, depth: int = 0) -> set[str]:
    """The attributes of a config that a class or a function reads; `named` is what a function calls it."""
    top: Any = tree(thing)
    if only_init:
        top = ast.Module([n for n in top.body[0].body if getattr(n, "name", "") == "__init__"], [])
    found: set[str] = set()
    scope = vars(sys.modules[thing.__module__])
    for node in ast.walk(top):
        if isinstance(node, ast.Attribute) and is_config(node.value, named):
            found.add(node.attr)
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called in ("getattr", "hasattr") and is_config(node.args[0], named):
            found |= {str(each.value) for each in node.args[1:2] if isinstance(each, ast.Constant)}
        function = scope.get(called)
        if inspect.isfunction(function) and ".models." in function.__module__ and depth < 3:
            parameters = list(inspect.signature(function).parameters)
            for at, argument in enumerate(node.args):
                if is_config(argument, named) and at < len(parameters):
                    found |= read(function, named=parameters[at], depth=depth + 1)
            for keyword in node.keywords:
                if is_config(keyword.value, named) and keyword.arg:
                    found |= read(function, named=keyword.arg, depth=depth + 1)
    return found


def is_config(node: ast.AST, named: str | None) -> bool:
    """`config`, `text_config`, `self.config`, or the parameter of that name."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == named or bool(CONFIG.search(name))


@cache
def made_of(kind: type, key: str) -> frozenset[str]:
    """What a config's class computes an attribute from: of a property all, of an assignment what stands in it."""
    found: set[str] = set()
    for base in kind.__mro__:
        if ".models." not in base.__module__:
            continue
        part = vars(base).get(key)
        if isinstance(part, property):
            found |= own_reads(tree(part.fget))
        for name in ("__init__", "__post_init__"):
            if name in vars(base):
                found |= assigned_from(tree(vars(base)[name]), key)
    return frozenset(found - {key})


def assigned_from(method: ast.AST, key: str) -> set[str]:
    """What `self.KEY = ...` reads in a method, with the tests around it and the local names in it."""
    local: dict[str, set[str]] = {}
    found: set[str] = set()

    def look(body: list[Any], around: set[str]) -> None:
        for node in body:
            tests = own_reads(getattr(node, "test", None), local) | own_reads(getattr(node, "iter", None), local)
            for inner in ("body", "orelse"):
                look(getattr(node, inner, None) or [], around | tests)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                value = own_reads(node.value, local) | around
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for each in ast.walk(target):
                        if isinstance(each, ast.Name):
                            local[each.id] = local.get(each.id, set()) | value
                        if isinstance(each, ast.Attribute) and each.attr == key:
                            found.update(value)

    look([n for top in getattr(method, "body", []) for n in getattr(top, "body", [])], set())
    return found


def own_reads(node: ast.AST | None, local: dict[str, set[str]] | None = None) -> set[str]:
    """`self.X`, `kwargs.pop("X")`, and what the local names in it were made of."""
    found: set[str] = set()
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            found.add(each.attr)
        if isinstance(each, ast.Call) and ast.unparse(each.func) in ("kwargs.pop", "kwargs.get") and each.args:
            found.add(str(getattr(each.args[0], "value", "")))
        if isinstance(each, ast.Name) and local:
            found |= local.get(each.id, set())
    return found


def is_data(kind: type, config: Any, name: str) -> bool:
    """A key that a file may have, no method and nothing of the class itself."""
    part = inspect.getattr_static(kind, name, None)
    if name in ("", "get") or re.match(r"(sub_configs|default)_", name):
        return False  # of a method's call, or a constant of the class
    return not (name.startswith("_") or inspect.isroutine(part) or isinstance(part, property | classmethod))


def undeclared(model_type: str, found: Iterable[str]) -> list[str]:
    """Those that the table neither reads nor assumes nor declares not to matter; a config with some is refused."""
    refused = set(defaults_of(model_type).asks) | set(defaults_of(model_type).parts)
    return sorted(set(found) - told(model_type) - refused - families().harmless_in(model_type))


def told(model_type: str, strictly: bool = False) -> set[str]:
    """Every key that the table reads or assumes for the FFNs of a type; those of the attention are not among them.

    Strictly: without other names of a key, and without those that only the rules with names ask for.
    """
    found: set[str] = set()
    for stack in families().by_type[model_type].stacks:
        stack = dataclasses.replace(stack, attention=None)
        found |= keys_of(plain(dataclasses.replace(stack, experts=stack.experts and plain(stack.experts))))
        found |= set() if strictly else keys_of(stack)
    if strictly:
        return found
    return found | {name for name, key in defaults_of(model_type).names.items() if key in found}


def plain(row: Any) -> Any:
    """A row without rules that have names, and without keys of several names."""
    several = {f.name: None for f in dataclasses.fields(row) if len(value_of(row, f.name)) > 1 and f.name not in LISTS}
    rules = {name: None for name in ("widened", "width", "blocks") if hasattr(row, name)}
    return dataclasses.replace(row, **several, **rules, **({"layout": Layout.ALL} if hasattr(row, "layout") else {}))


def value_of(row: Any, name: str) -> tuple[Any, ...]:
    """What stands there, if it is several."""
    value = getattr(row, name)
    return value if isinstance(value, tuple) else ()


LISTS = ("assumes", "absent", "nonzero")


def work(model_type: str) -> dict[str, Any]:
    """One line."""
    try:
        return {"status": "found", "keys": keys(model_type)}
    except Exception as problem:
        return {"status": "crashed", "why": f"{type(problem).__name__}: {problem}"[:200]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="+")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    types = [name for name, family in sorted(families().by_type.items()) if family.stacks]
    missing = [name for name in types if name not in json.loads(GOLDEN.read_text(encoding="utf-8"))["keys"]]
    found = {}
    for name in {"all": types, "new": missing}.get(asked.types[0], asked.types):
        line = {"type": name, **work(name)}
        if "keys" in line:
            found[name] = line["keys"]
            line |= {"keys": undeclared(name, found[name])} if asked.list else {}
        print(json.dumps(line), flush=True)
    if asked.write:
        import transformers

        known = json.loads(GOLDEN.read_text(encoding="utf-8"))["keys"] if GOLDEN.exists() else {}
        known |= {name: " ".join(each) for name, each in found.items()}
        known = {name: known[name] for name in types if name in known}
        content = {"transformers": transformers.__version__, "keys": known}
        GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import torch  # noqa: F401 - before the forks, which then need not
    import transformers.modeling_utils

    transformers.logging.set_verbosity_error()
    main()
