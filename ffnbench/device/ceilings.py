"""Lists the roofs of a machine: calls that could show what it can do, for the cases of
a plan or for the machine alone.

The worker finds out which of them are the fastest (worker/ceiling_calls.py). The roofs
of a group are in the order in which they are tried, the cheap ones first, since there
may not be time for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ffnbench.choices import Backend, MatmulPrecision
from ffnbench.device.environment import UNKNOWN_CACHE, level_of
from ffnbench.ffn.spec import item_bytes
from ffnbench.messages import CacheLevel
from ffnbench.plan import Case
from ffnbench.result import SIZES_ALIKE, Bound, CaseCost, Roof
from ffnbench.stats.ceilings import needed_by_cases

MM, ONEDNN = "torch.mm", "oneDNN"
SUM = "torch.sum"
SUM_INT = "torch.sum of int64"
MV = "torch.mv"
SUM_REPEATED = "repeated torch.sum"
EMPTY = "an empty module"
PRODUCT_PATHS = {"cpu": (MM, ONEDNN), "cuda": (MM,)}
BYTES_PATHS = {"cpu": (SUM, SUM_INT), "cuda": (SUM, MV)}
MATRIX_COLUMNS = 4096  # of a matrix that is read, at most
# a single read of less takes so little time that the call itself hides it
SMALL_BYTES = 1 << 21
READ_IN_ALL = 1 << 23  # bytes that a call reads which reads a small buffer repeatedly
SQUARES = {"cpu": (256, 512, 1024, 2048), "cuda": (256, 2048, 4096, 8192)}
# tokens of the parts into which a longer input is split
SPLITS = {"cpu": (128, 512, 2048), "cuda": (2048, 8192, 32768)}
LEAST_TOKENS = 16  # with fewer a product mostly reads its weights
MOST_FLOPS = {"cpu": 2e10, "cuda": 4e12}  # of one call
MOST_WIDTHS = 2  # of the cases, the widest ones
TIMES_LAST_CACHE = 4  # a buffer so many times as large is read from memory alone
LEAST_READ = 1 << 12  # bytes
GPU_CACHE = 1 << 26  # bytes that the last cache of a GPU is taken to hold
HIGHEST = MatmulPrecision.HIGHEST

MatmulShape = tuple[int, int, int]  # tokens, out, in


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where cases run, which their roofs have in common. `caches` are those of the
    machine's CPU.
    """

    device: str
    threads: int
    caches: tuple[CacheLevel, ...]

    @property
    def device_type(self) -> str:
        """cpu, or cuda for every accelerator: a key of the tables of this file."""
        return "cpu" if self.device == "cpu" else "cuda"

    @property
    def last_cache_bytes(self) -> int:
        """Bytes that the last cache holds, or is taken to hold."""
        if self.device_type == "cuda":
            return GPU_CACHE
        if self.caches:
            return self.caches[-1].capacity(self.threads)
        return UNKNOWN_CACHE

    def level_of(self, size: int) -> str:
        """The cache of a CPU that holds so many bytes; empty for a GPU, whose caches
        only the worker knows.
        """
        if self.device_type == "cuda":
            return ""
        return level_of(size, self.threads, self.caches)

    def enough_bytes(self, size: int, memory_bytes: int) -> int:
        """How many bytes are read in place of so many: of a buffer that is read from
        memory alone a part is enough.
        """
        return min(
            size,
            max(TIMES_LAST_CACHE * self.last_cache_bytes, SMALL_BYTES),
            max(memory_bytes // 2, LEAST_READ),
        )


def roofs_for(
    cases: Sequence[Case],
    costs: Iterable[CaseCost],
    caches: Sequence[CacheLevel],
    memory_bytes: int,
) -> list[Roof]:
    """The roofs that may bound the cases of a plan whose devices are known, without
    those that take more than `memory_bytes`.
    """
    needs = {case.label: needed for case, needed in needed_by_cases(cases, costs)}
    cases_of: dict[Site, list[Case]] = defaultdict(list)
    for case in cases:
        if case.label in needs:
            site = Site(
                device=case.workload.device,
                threads=case.workload.threads,
                caches=tuple(caches),
            )
            cases_of[site].append(case)
    roofs = [
        _empty(device) for device in dict.fromkeys(site.device for site in cases_of)
    ]
    for site, here in cases_of.items():
        sizes = different_sizes({needs[case.label].bytes for case in here})
        roofs += _reads(site, [site.enough_bytes(size, memory_bytes) for size in sizes])
        for dtype, precision in dict.fromkeys(map(_exactness, here)):
            with_products = [
                case
                for case in here
                if _exactness(case) == (dtype, precision) and needs[case.label].flops
            ]
            if with_products:
                roofs += _products(
                    site, dtype, shapes_of(with_products, site.device_type), precision
                )
        # a case of 16 bits may compute in float32
        if any(
            item_bytes(case.workload.dtype) < item_bytes("float32") for case in here
        ):
            roofs += _products(site, "float32", _squares(site.device_type))
    return _that_fit(roofs, memory_bytes)


def roofs_of_machine(
    threads: int, dtypes: Iterable[str], caches: Sequence[CacheLevel], memory_bytes: int
) -> list[Roof]:
    """The roofs of the CPU without a plan: products in these dtypes, and reads from
    each level of cache and from memory, without those that take more than
    `memory_bytes`.
    """
    site = Site(device="cpu", threads=threads, caches=tuple(caches))
    sizes = [cache.capacity(threads) // 2 for cache in caches]
    sizes.append(min(2 * TIMES_LAST_CACHE * site.last_cache_bytes, memory_bytes // 2))
    roofs = [_empty(site.device), *_reads(site, sizes)]
    for dtype in dtypes:
        roofs += _products(site, dtype, _squares(site.device_type))
    return _that_fit(roofs, memory_bytes)


def _that_fit(roofs: Iterable[Roof], memory_bytes: int) -> list[Roof]:
    """The roofs that take at most so many bytes while they are measured, each once."""
    return [roof for roof in dict.fromkeys(roofs) if memory_of(roof) <= memory_bytes]


def group_of(roof: Roof) -> tuple[str | int, ...]:
    """The key of a roof's group. The roofs of a group bound the same cases, and the
    best of them is a ceiling.
    """
    if roof.bound is Bound.PRODUCTS:
        return roof.bound, roof.device, roof.threads, roof.dtype, roof.matmul_precision
    if roof.bound is Bound.BYTES:
        return roof.bound, roof.device, roof.threads, roof.read_bytes
    return roof.bound, roof.device


def memory_of(roof: Roof) -> int:
    """About the bytes that a roof takes while it is measured: its operands, and packed
    weights beside them.
    """
    if roof.bound is Bound.PRODUCTS:
        tokens, out, width = roof.shape
        return item_bytes(roof.dtype) * (tokens * (out + width) + 2 * out * width)
    if roof.bound is Bound.BYTES:
        return 2 * roof.read_bytes
    return 0


def different_sizes(sizes: Iterable[int]) -> list[int]:
    """The sizes without those that are much like a smaller one."""
    different: list[int] = []
    for size in sorted(sizes):
        if not different or size > (1 + SIZES_ALIKE) * different[-1]:
            different.append(size)
    return different


def shapes_of(cases: Sequence[Case], device_type: str) -> list[MatmulShape]:
    """The shapes of products to try: square ones, and those of the cases, with all
    tokens and with parts of them; those of fewer FLOPs first.
    """
    widths = dict.fromkeys(
        (_widest(case), case.ffn.d_model) for case in cases if case.ffn.d_ff
    )
    widest = sorted(widths, key=lambda width: -width[0])[:MOST_WIDTHS]
    longest = max(case.workload.tokens for case in cases)
    tokens = {
        count
        for count in (*SPLITS[device_type], longest)
        if LEAST_TOKENS <= count <= longest
    }
    shapes = set(_squares(device_type))
    for d_ff, d_model in widest:
        for count in tokens:
            shapes |= {(count, d_ff, d_model), (count, d_model, d_ff)}
    return [
        shape
        for shape in sorted(shapes, key=_by_flops)
        if _flops(shape) <= MOST_FLOPS[device_type]
    ]


def _widest(case: Case) -> int:
    """The outputs of a case's largest product: those of gate and up where they are
    packed.
    """
    d_ff = case.ffn.d_ff or 0
    if case.workload.backend in (Backend.PACKED, Backend.PACKED_UP_GATE):
        return 2 * d_ff
    return d_ff


def _squares(device_type: str) -> list[MatmulShape]:
    return [(side, side, side) for side in SQUARES[device_type]]


def _flops(shape: MatmulShape) -> int:
    tokens, out, width = shape
    return 2 * tokens * out * width


def _by_flops(shape: MatmulShape) -> tuple[int, MatmulShape]:
    return _flops(shape), shape


def _empty(device: str) -> Roof:
    return Roof(
        name=f"(call {device})",
        bound=Bound.CALL,
        path=EMPTY,
        amount=1,
        device=device,
        dtype="float32",
        threads=1,
    )


def _exactness(case: Case) -> tuple[str, MatmulPrecision]:
    """The dtype of a case's products, and their precision, which only those of float32
    can choose.
    """
    work = case.workload
    if work.dtype == "float32":
        return work.dtype, work.matmul_precision
    return work.dtype, HIGHEST


def _products(
    site: Site,
    dtype: str,
    shapes: Iterable[MatmulShape],
    precision: MatmulPrecision = HIGHEST,
) -> list[Roof]:
    exact = "" if precision == HIGHEST else f" {precision}"
    roofs = []
    for shape in shapes:
        sizes = "x".join(map(str, shape))
        for path in PRODUCT_PATHS[site.device_type]:
            roof = Roof(
                name=f"({path} {sizes} {dtype}{exact} {site.device} {site.threads})",
                bound=Bound.PRODUCTS,
                path=path,
                amount=_flops(shape),
                shape=shape,
                matmul_precision=precision,
                device=site.device,
                threads=site.threads,
                dtype=dtype,
            )
            roofs.append(roof)
    return roofs


def _reads(site: Site, sizes: Iterable[int]) -> list[Roof]:
    """The roofs that read each size, rounded down to that of a matrix (matrix_of)."""
    roofs = []
    for size in sizes:
        rows, columns = matrix_of(size)
        read_bytes = 4 * rows * columns
        times_read = dict.fromkeys(BYTES_PATHS[site.device_type], 1)
        # a repeated read is the first of the group, which is always tried: there the
        # call itself hides least
        if read_bytes < SMALL_BYTES:
            times_read = {SUM_REPEATED: max(2, READ_IN_ALL // read_bytes)} | times_read
        for path, times in times_read.items():
            roof = Roof(
                name=f"({path} {read_bytes} bytes {site.device} {site.threads})",
                bound=Bound.BYTES,
                path=path,
                amount=times * read_bytes,
                shape=(times,) if times > 1 else (),
                level=site.level_of(read_bytes),
                device=site.device,
                threads=site.threads,
                dtype="float32",
            )
            roofs.append(roof)
    return roofs


def matrix_of(size: int) -> tuple[int, int]:
    """Rows and columns of a float32 matrix of at most so many bytes, and of 8 x 8 at
    least. The columns are a power of two, and no more than rows or MATRIX_COLUMNS.
    """
    elements = max(64, size // 4)
    columns = min(MATRIX_COLUMNS, 1 << (elements.bit_length() - 1) // 2)
    return max(1, elements // columns), columns
