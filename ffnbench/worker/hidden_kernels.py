"""Kernels that torch's dispatcher never sees: launched by Triton or by an extension. Runs in a worker; needs torch.

Kernels of Triton are seen as they are launched, by their names. What an extension computes shows where it comes back:
memory that was allocated empty is read, or given back, though no operation wrote it. Not seen: an extension that
overwrites what an operation has written, or brings memory of its own.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

UNNAMED = "kernels outside torch's dispatcher"
EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
# of an argument that they change, the old values do not matter; what an index leaves is filled elsewhere
FILLS = frozenset({
    "copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "exponential_", "random_", "index_put_",
    "_index_put_impl_", "index_copy_", "index_fill_", "scatter_", "masked_fill_", "masked_scatter_", "set_", "resize_",
})  # fmt: skip
BETA = frozenset({"addmm", "baddbmm", "addmv", "addbmm", "addr"})  # beta=0: their first argument is not read


class HiddenKernels(TorchDispatchMode):
    """Watches which memory of a run was never written by an operation, and what Triton launches."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._unwritten: set[StorageWeakRef] = set()  # allocated empty
        self._read = False  # some of it, though nobody seemed to write there
        self._kernels: dict[str, None] = {}  # of Triton
        self._triton: tuple[Any, Any] | None = None

    def __enter__(self) -> HiddenKernels:
        self._triton = _triton_run()
        if self._triton is not None:
            owner, launch = self._triton
            owner.run = self._named(launch)
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        if self._triton is not None:
            owner, launch = self._triton
            owner.run = launch

    def _named(self, launch: Any) -> Any:
        """The launch of a kernel of Triton, noted."""

        def run(kernel: Any, *args: Any, **named: Any) -> Any:
            if not named.get("warmup"):
                function = getattr(kernel, "fn", kernel)
                self._kernels[f"the Triton kernel {getattr(function, '__name__', 'without a name')}"] = None
            return launch(kernel, *args, **named)

        return run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):  # an operator of higher order may write to what it is given
            result = func(*args, **kwargs)
            self._unwritten -= _storages((args, kwargs))
            return result
        name = func._overloadpacket.__name__
        read, written = _arguments(func, name, args, kwargs)
        if not (func.is_view or name.endswith("_like") or name.startswith("new_")):
            self.look(read)
        result = func(*args, **kwargs)
        if name in EMPTY:
            self._unwritten |= _storages(result)
        self._unwritten -= _storages(written)
        return result

    def look(self, values: Any) -> None:
        """What is read, or given back: has an operation written it?"""
        self._read |= bool(_storages(values) & self._unwritten)

    @property
    def found(self) -> tuple[str, ...]:
        """The kernels, by name where it is known."""
        return tuple(self._kernels) or ((UNNAMED,) if self._read else ())


def _storages(values: Any) -> set[StorageWeakRef]:
    """Which memory it is; no other is taken for it, not even once it is freed."""
    tensors = [one for one in tree_leaves(values) if isinstance(one, Tensor) and one.layout is torch.strided]
    return {StorageWeakRef(tensor.untyped_storage()) for tensor in tensors if tensor.numel()}


def _arguments(func: Any, name: str, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
    """What an operation reads, and what it writes to."""
    read: list[Any] = []
    written: list[Any] = []
    schema = func._schema.arguments
    for place, value in [*zip(schema, args, strict=False), *((one, kwargs.get(one.name)) for one in schema)]:
        writes = place.alias_info is not None and place.alias_info.is_write
        if writes:
            written.append(value)
        only = writes and (place.kwarg_only or name in FILLS)
        unread = name.rstrip("_") in BETA and place is schema[0] and kwargs.get("beta", 1) == 0
        if not (only or unread):
            read.append(value)
    return read, written


def _triton_run() -> tuple[Any, Any] | None:
    """The class whose `run` launches every kernel that is written in Triton, and that function; None without Triton."""
    owner = getattr(getattr(sys.modules.get("triton"), "runtime", None), "JITFunction", None)
    launch = getattr(owner, "run", None)
    return None if launch is None else (owner, launch)
