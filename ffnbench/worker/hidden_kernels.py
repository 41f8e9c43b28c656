"""Kernels that torch's dispatcher never sees: launched by Triton or by an extension, or NumPy. Runs in a worker.

What such a kernel computes shows where it comes back. Memory that was allocated empty is read though no operation
wrote it; a tensor that no operation made is read, and holds other numbers for another input. Kernels of Triton are
seen as they are launched, by their names. Not seen: an extension that overwrites what an operation has written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

UNNAMED = "kernels outside torch's dispatcher"
EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
# of an argument that they change, the old values do not matter; what an index leaves is filled elsewhere
FILLS = frozenset({
    "copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "exponential_", "random_", "index_put_",
    "_index_put_impl_", "index_copy_", "index_fill_", "scatter_", "masked_fill_", "masked_scatter_", "set_", "resize_",
})  # fmt: skip
BETA = frozenset({"addmm", "baddbmm", "addmv", "addbmm", "addr"})  # beta=0: their first argument is not read


class Outside(TorchDispatchMode):
    """Watches where the tensors of a run come from. `tokens` are those of the input, `known` what was there before."""

    supports_higher_order_operators = True

    def __init__(self, known: Iterable[Tensor], tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.unwritten = 0  # reads of memory that nobody seemed to write
        self.foreign: list[Tensor] = []  # tensors that no operation made, in the order of their first use
        self.kernels: dict[str, None] = {}  # of Triton
        self._from: dict[StorageWeakRef, str] = {}  # "" for what an operation wrote, else the operation that allocated
        self._unpatch: list[tuple[Any, Any]] = []
        for tensor in known:
            self._from[_storage(tensor)] = ""

    def __enter__(self) -> Outside:
        if (run := _triton_run()) is not None:
            owner, launch = run
            owner.run = self._named(launch)
            self._unpatch.append(run)
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for owner, launch in self._unpatch:
            owner.run = launch

    def _named(self, launch: Any) -> Any:
        """The launch of a kernel of Triton, noted."""

        def run(kernel: Any, *args: Any, **named: Any) -> Any:
            if not named.get("warmup"):
                function = getattr(kernel, "fn", kernel)
                self.kernels[f"the Triton kernel {getattr(function, '__name__', 'without a name')}"] = None
            return launch(kernel, *args, **named)

        return run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):  # an operator of higher order may write to what it is given
            result = func(*args, **kwargs)
            for tensor in _tensors((args, kwargs, result)):
                self._from[_storage(tensor)] = ""
            return result
        name = func._overloadpacket.__name__
        read, written = _arguments(func, name, args, kwargs)
        if name == "lift_fresh":  # a tensor that Python has made
            for tensor in read:
                if not (tensor.is_floating_point() and tensor.numel() >= self.tokens):  # of Python's own numbers
                    self._from.setdefault(_storage(tensor), "")
        elif not (name in EMPTY or name.endswith("_like") or name.startswith("new_") or func.is_view):
            for tensor in read:
                self.look(tensor)
        result = func(*args, **kwargs)
        for tensor in written:
            self._from[_storage(tensor)] = ""
        allocated = name if name in EMPTY or name in ZEROS else ""
        for tensor in _tensors(result):
            if func.is_view and _storage(tensor) not in self._from:
                continue  # of a tensor that is unknown: it is met when it is read
            self._from.setdefault(_storage(tensor), allocated)
        return result

    def look(self, tensor: Tensor) -> None:
        """What is read: has an operation written it?"""
        if not tensor.numel():
            return
        key = _storage(tensor)
        allocated = self._from.get(key)
        self._from[key] = ""
        if allocated is None:
            if not tensor.is_meta:
                with _disable_current_modes():
                    self.foreign.append(tensor.detach().clone())
        elif allocated in EMPTY or (allocated in ZEROS and _not_zero(tensor)):
            self.unwritten += 1

    def found(self, again: Outside | None) -> tuple[str, ...]:
        """The kernels, by name where it is known; `again` is the watch of a run on another input."""
        if self.kernels:
            return tuple(self.kernels)
        if self.unwritten or (again is not None and not _alike(self.foreign, again.foreign)):
            return (UNNAMED,)
        return ()


def _not_zero(tensor: Tensor) -> bool:
    with _disable_current_modes():
        return not tensor.is_meta and bool(tensor.detach().any())


def _alike(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether they are the same constants."""
    return len(some) == len(others) and all(map(torch.equal, some, others))


def _storage(tensor: Tensor) -> StorageWeakRef:
    """Which memory it is; no other is taken for it, not even once it is freed."""
    return StorageWeakRef(tensor.untyped_storage())


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor) and value.layout is torch.strided]


def _arguments(func: Any, name: str, args: Any, kwargs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that an operation reads, and those that it writes."""
    read: list[Tensor] = []
    written: list[Tensor] = []
    schema = func._schema.arguments
    for place, value in [*zip(schema, args, strict=False), *((one, kwargs.get(one.name)) for one in schema)]:
        tensors = _tensors(value)
        writes = place.alias_info is not None and place.alias_info.is_write
        if writes:
            written += tensors
        only = writes and (place.kwarg_only or name in FILLS)
        unread = name.rstrip("_") in BETA and place is schema[0] and kwargs.get("beta", 1) == 0
        if not (only or unread):
            read += tensors
    return read, written


def _triton_run() -> tuple[Any, Any] | None:
    """The class whose `run` launches every kernel that is written in Triton, and that function; None without Triton."""
    owner = getattr(getattr(sys.modules.get("triton"), "runtime", None), "JITFunction", None)
    launch = getattr(owner, "run", None)
    return None if launch is None else (owner, launch)
