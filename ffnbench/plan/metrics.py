"""The table of metrics: what can be known of a case."""

from __future__ import annotations

from dataclasses import dataclass

LATENCY, PEAK, SAVED, COMPILE = "latency", "peak_bytes", "saved_bytes", "compile_s"
DEVICE_TIME, HOST_TIME = "device_s", "host_s"
LOAD, HIT = "expert_load_max", "experts_hit"
PACK, HELD = "pack_s", "held_bytes"
ERROR, GRADIENT_ERROR = "error", "gradient_error"
MEMORY_GROUP = "memory"
RATE = "rate"  # the group of the two metrics that say how near a row is to the machine's rates
PRODUCTS, COPY = "products_s", "copy_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A row of the table. A new metric is one row, and the job that measures it.

    `group` is the word of --metrics that asks for it, "" for a metric that comes along
    with others. `job` is what a worker does to measure it, "" for what follows from the
    closed forms alone. An exact metric has the same value in every process, so one
    process measures it. `closed_form` is whether a field of Cost with that name
    predicts it; tests hold the two equal.
    """

    name: str
    unit: str  # s, bytes, share, or "" for a plain number
    group: str = ""
    job: str = ""
    exact: bool = True
    less_is_better: bool = False
    checked: bool = False  # whether `check` holds it against a baseline
    closed_form: bool = False


# fmt: off
METRICS = (
    Metric(name=LATENCY, unit="s", group="latency", job="sample", exact=False, less_is_better=True),
    # on an accelerator, from the same sample as the latency: the seconds that the
    # device works for a call, and those that the host takes to launch it
    Metric(name=DEVICE_TIME, unit="s", job="sample", exact=False, less_is_better=True),
    Metric(name=HOST_TIME, unit="s", job="sample", exact=False, less_is_better=True),
    Metric(name="params", unit="", checked=True, closed_form=True),
    Metric(name="flops_forward", unit="", checked=True, closed_form=True),
    Metric(name="flops_backward", unit="", checked=True, closed_form=True),
    Metric(name="flops_elementwise", unit="", checked=True, closed_form=True),
    Metric(name=PEAK, unit="bytes", group=MEMORY_GROUP, job="memory", less_is_better=True, checked=True, closed_form=True),
    Metric(name=SAVED, unit="bytes", group=MEMORY_GROUP, job="memory", less_is_better=True, checked=True, closed_form=True),
    Metric(name="zero_share", unit="share", group="sparsity", job="sparsity"),
    Metric(name="dead_share", unit="share", group="sparsity", job="sparsity"),
    Metric(name=LOAD, unit="", group="routing", job="route"),
    Metric(name=HIT, unit="", group="routing", job="route"),
    # of every case that is compiled
    Metric(name=COMPILE, unit="s", job="open", exact=False, less_is_better=True),
    # of every case whose weights are packed
    Metric(name=PACK, unit="s", job="open", exact=False, less_is_better=True),
    # of the weights, as the call holds them
    Metric(name=HELD, unit="bytes", job="open", less_is_better=True),
    # relative to float64; a run that measures latency checks errors anyway, and their
    # group asks for them without latency
    Metric(name=ERROR, unit="", group=ERROR, job="check", exact=False, less_is_better=True),
    Metric(name=GRADIENT_ERROR, unit="", group=ERROR, job="check", less_is_better=True),
    # the seconds of a row's bare matrix products, and of a copy of its bytes
    Metric(name=PRODUCTS, unit="s", group=RATE, job="rate", exact=False),
    Metric(name=COPY, unit="s", group=RATE, job="rate", exact=False),
)
# fmt: on
METRIC_GROUPS = {
    group: tuple(metric for metric in METRICS if metric.group == group)
    for group in dict.fromkeys(metric.group for metric in METRICS if metric.group)
}
CLOSED_FORMS = frozenset(metric.name for metric in METRICS if metric.closed_form)
