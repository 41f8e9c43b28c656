"""Which calls could show what this machine can do, for the cases of a plan or for the machine alone.

The worker finds out which of them are the fastest (worker/ceiling_calls.py). Those of a group stand in the order in
which they are tried, the cheap ones first: there is not always time for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ffnbench.choices import Backend, MatmulPrecision
from ffnbench.device.environment import UNKNOWN_CACHE, level_of
from ffnbench.ffn.spec import item_bytes
from ffnbench.messages import CacheLevel
from ffnbench.plan import Case, needed_by
from ffnbench.result import ALIKE, Bound, CaseCost, Roof

MM, ONEDNN = "torch.mm", "oneDNN"
SUM, SUM_INT, MV, AGAIN = "torch.sum", "torch.sum of int64", "torch.mv", "repeated torch.sum"
EMPTY = "an empty module"
PRODUCT_PATHS = {"cpu": (MM, ONEDNN), "cuda": (MM,)}
BYTES_PATHS = {"cpu": (SUM, SUM_INT), "cuda": (SUM, MV)}
COLUMNS = 4096  # of a matrix that is read, at most
SMALL = 1 << 21  # bytes: below, what a call itself takes hides how fast it reads
READ_IN_ALL = 1 << 23  # by a call that reads a small buffer again and again
SQUARES = {"cpu": (256, 512, 1024, 2048), "cuda": (256, 2048, 4096, 8192)}
SPLITS = {"cpu": (128, 512, 2048), "cuda": (2048, 8192, 32768)}  # tokens of a part of a longer input
LEAST_TOKENS = 16  # with fewer the weights are read, and little is computed
MOST_FLOPS = {"cpu": 2e10, "cuda": 4e12}  # of one call
MOST_WIDTHS = 2
BEYOND = 4  # times the last cache: what is larger is read from memory alone
GPU_CACHE = 1 << 26
HIGHEST = MatmulPrecision.HIGHEST

Shape = tuple[int, int, int]  # tokens, out, in


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where cases run: what their roofs have in common."""

    device: str
    threads: int

    @property
    def kind(self) -> str:
        """cpu, or cuda for what every accelerator is asked."""
        return "cpu" if self.device == "cpu" else "cuda"


def roofs_for(cases: Sequence[Case], costs: Iterable[CaseCost], found: Sequence[CacheLevel], room: int) -> list[Roof]:
    """The candidates for the cases of a plan whose devices are known; none that takes more than `room` bytes."""
    known = {one.case: one.cost for one in costs}
    cases = [case for case in cases if case.label in known]
    roofs = [_empty(device) for device in dict.fromkeys(case.workload.device for case in cases)]
    for target in dict.fromkeys(_target(case) for case in cases):
        mine = [case for case in cases if _target(case) == target]
        needs = {case.label: needed_by(case, known[case.label]) for case in mine}
        sizes = {needs[case.label].bytes for case in mine}
        roofs += _reads(target, [_at_most(size, target, found, room) for size in apart(sizes)], found)
        for dtype, precision in dict.fromkeys(map(_exactness, mine)):
            here = [case for case in mine if _exactness(case) == (dtype, precision) and needs[case.label].flops]
            if here:
                roofs += _products(target, dtype, shapes_of(here, target.kind), precision)
        if any(item_bytes(case.workload.dtype) < item_bytes("float32") for case in mine):  # may compute in float32
            roofs += _products(target, "float32", _squares(target.kind))
    return [roof for roof in dict.fromkeys(roofs) if memory_of(roof) <= room]


def roofs_of_machine(threads: int, dtypes: Iterable[str], found: Sequence[CacheLevel], room: int) -> list[Roof]:
    """The candidates for the CPU by itself: products by dtype, bytes of each level of cache and of memory."""
    target = Target(device="cpu", threads=threads)
    last = found[-1].capacity(threads) if found else UNKNOWN_CACHE
    sizes = [cache.capacity(threads) // 2 for cache in found] + [min(2 * BEYOND * last, room // 2)]
    roofs = [_empty(target.device), *_reads(target, sizes, found)]
    for dtype in dtypes:
        roofs += _products(target, dtype, _squares(target.kind))
    return [roof for roof in dict.fromkeys(roofs) if memory_of(roof) <= room]


def group_of(roof: Roof) -> tuple[str | int, ...]:
    """Those of one group bound the same: the best of them is a ceiling."""
    if roof.bound is Bound.PRODUCTS:
        return roof.bound, roof.device, roof.threads, roof.dtype, roof.matmul_precision
    if roof.bound is Bound.BYTES:
        return roof.bound, roof.device, roof.threads, roof.read_bytes
    return roof.bound, roof.device


def memory_of(roof: Roof) -> int:
    """About the bytes that it takes while it is measured: its operands, and packed weights beside them."""
    if roof.bound is Bound.PRODUCTS:
        tokens, out, width = roof.shape
        return item_bytes(roof.dtype) * (tokens * (out + width) + 2 * out * width)
    return 0 if roof.bound is Bound.CALL else 2 * roof.read_bytes


def apart(sizes: Iterable[int]) -> list[int]:
    """Sizes of which no two are alike: of those that are, the smallest."""
    kept: list[int] = []
    for size in sorted(sizes):
        if not kept or size > (1 + ALIKE) * kept[-1]:
            kept.append(size)
    return kept


def shapes_of(cases: Sequence[Case], kind: str) -> list[Shape]:
    """Of products: square ones, and the cases' own, whole and in parts of fewer tokens."""
    widths = list(dict.fromkeys((_widest(case), case.ffn.d_model) for case in cases if case.ffn.d_ff))
    widths = sorted(widths, key=lambda width: -width[0])[:MOST_WIDTHS]
    longest = max(case.workload.tokens for case in cases)
    tokens = {count for count in (*SPLITS[kind], longest) if LEAST_TOKENS <= count <= longest}
    own = [shape for d_ff, d in widths for count in sorted(tokens) for shape in ((count, d_ff, d), (count, d, d_ff))]
    found = sorted({*own, *_squares(kind)}, key=_flops)
    return [shape for shape in found if _flops(shape) <= MOST_FLOPS[kind]]


def _widest(case: Case) -> int:
    """The rows of its largest product: gate and up together where they are one."""
    joined = case.workload.backend in (Backend.PACKED, Backend.PACKED_UP_GATE)
    return (2 if joined else 1) * (case.ffn.d_ff or 0)


def _squares(kind: str) -> list[Shape]:
    return [(side, side, side) for side in SQUARES[kind]]


def _flops(shape: Shape) -> int:
    tokens, out, width = shape
    return 2 * tokens * out * width


def _target(case: Case) -> Target:
    return Target(device=case.workload.device, threads=case.workload.threads)


def _at_most(size: int, target: Target, found: Sequence[CacheLevel], room: int) -> int:
    """A size that is read from memory alone needs not be read whole."""
    last = found[-1].capacity(target.threads) if found else UNKNOWN_CACHE
    last = last if target.kind == "cpu" else GPU_CACHE
    return min(size, max(BEYOND * last, SMALL), max(room // 2, 1 << 12))


def _empty(device: str) -> Roof:
    return Roof(
        name=f"(call {device})", bound=Bound.CALL, path=EMPTY, amount=1, device=device, dtype="float32", threads=1
    )


def _exactness(case: Case) -> tuple[str, MatmulPrecision]:
    """The dtype of its products, and their precision, which those of float32 alone have."""
    work = case.workload
    return work.dtype, work.matmul_precision if work.dtype == "float32" else HIGHEST


def _products(target: Target, dtype: str, shapes: Iterable[Shape], precision: MatmulPrecision = HIGHEST) -> list[Roof]:
    exact = "" if precision == HIGHEST else f" {precision}"
    return [
        Roof(
            name=f"({path} {'x'.join(map(str, shape))} {dtype}{exact} {target.device} {target.threads})",
            bound=Bound.PRODUCTS, path=path, amount=_flops(shape), shape=shape, matmul_precision=precision,
            device=target.device, threads=target.threads, dtype=dtype,
        )
        for shape in shapes
        for path in PRODUCT_PATHS[target.kind]
    ]  # fmt: skip


def _reads(target: Target, sizes: Iterable[int], found: Sequence[CacheLevel]) -> list[Roof]:
    """Of each size, rounded down to a matrix of few columns more than rows."""
    roofs = []
    for size in sizes:
        rows, columns = matrix_of(size)
        amount = 4 * rows * columns
        level = level_of(amount, target.threads, found) if target.kind == "cpu" else ""
        # the first is tried whatever the time: of a small buffer that which a call itself does not hide
        again = {AGAIN: max(2, READ_IN_ALL // amount)} if amount < SMALL else {}
        roofs += [
            Roof(
                name=f"({path} {amount} bytes {target.device} {target.threads})", bound=Bound.BYTES, path=path,
                amount=times * amount, shape=(times,) if times > 1 else (), level=level, device=target.device,
                threads=target.threads, dtype="float32",
            )
            for path, times in (again | dict.fromkeys(BYTES_PATHS[target.kind], 1)).items()
        ]  # fmt: skip
    return roofs


def matrix_of(size: int) -> tuple[int, int]:
    """Rows and columns of float32 of at most so many bytes, an even number of elements."""
    elements = max(64, size // 4)
    columns = min(COLUMNS, 1 << (elements.bit_length() - 1) // 2)
    return max(1, elements // columns), columns
